"""Paraphrases of the instructions in the styles of several personas, such as a layperson (paper C.3)."""
