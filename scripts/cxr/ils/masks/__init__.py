"""Lesion masks by Algorithm 1, the zones that they confirm, and positive instructions (paper A.3 to A.5)."""
