"""Algorithm 1 and what follows from a threshold: lesion masks, grounding, positive units (paper A.3 to A.5)."""
