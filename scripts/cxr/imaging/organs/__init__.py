"""Segmenting lungs and heart on frames. Images without a complete chest, or with poor contrast, are excluded."""
