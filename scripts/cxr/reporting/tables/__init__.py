"""Compute the paper's tables from our results, next to the paper's values, and check that no image is lost."""
