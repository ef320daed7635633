"""Evaluation: how good predicted masks and answers are, beside the paper's values (Tables 4, 5, 6, 14)."""
