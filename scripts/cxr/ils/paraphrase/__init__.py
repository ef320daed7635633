"""Paraphrases of the instructions by personas, with the same meaning (paper C.3)."""
