"""Review of a split by experts: a page for each, and what their sheets say (ils.md section 8)."""
