"""Evaluation of predicted masks and answers, next to the scores that the paper prints (Tables 4, 5, 6, 14)."""
