"""The paper's tables from our results, beside the paper's values, and the check that no image is lost."""
