"""Priors of place and size for each finding: the paper's, or fitted to boxes that people drew."""
