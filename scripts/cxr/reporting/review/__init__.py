"""Review by experts: make a page per expert, and merge the sheets with their answers."""
