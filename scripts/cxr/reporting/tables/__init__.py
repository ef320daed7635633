"""The paper's tables from our files, beside the paper's values, and the check that every image is accounted for."""
