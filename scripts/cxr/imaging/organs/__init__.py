"""Segmenting lungs and heart on frames. Images that are not a complete, usable chest X-ray are excluded."""
