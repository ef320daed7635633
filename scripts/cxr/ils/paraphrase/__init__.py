"""Paraphrases of the instructions (paper C.3): other wordings with the same meaning, by personas."""
