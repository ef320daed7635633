"""Paraphrases of the instructions (paper C.3): other wordings of the same meaning, by personas."""
