"""The prompts stage: mines phrases of findings from the user's reports for review (the paper's section 3.3)."""
