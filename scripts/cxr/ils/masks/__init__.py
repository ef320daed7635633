"""Algorithm 1 and what follows from a threshold: lesion masks, grounding, positive units (ils.md sections 5 to 7)."""
