"""The editing stage: puts findings into healthy X-rays (the paper's section 3.5)."""
