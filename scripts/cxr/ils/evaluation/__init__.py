"""Evaluation: scores of predicted masks and answers, next to the paper's values (Tables 4, 5, 6, 14)."""
