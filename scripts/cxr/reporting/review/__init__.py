"""Review of a split by experts: make a page per expert, and merge their sheets."""
