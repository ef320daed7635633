"""Compute the paper's tables from our results, beside the paper's values, and check that no image is lost."""
