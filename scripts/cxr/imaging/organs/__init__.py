"""Segmenting lungs and heart on frames; images that are not a complete, usable chest X-ray are excluded."""
