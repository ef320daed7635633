"""Phrases of findings, mined from the user's own reports for a person to review (the paper's section 3.3)."""
