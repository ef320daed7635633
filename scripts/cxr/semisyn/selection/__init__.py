"""Choosing a configuration for each finding from the scores of all (the paper's sections 3.6 and 4.2)."""
