"""Segmenting lungs and heart on the image; images that are not a complete, usable chest X-ray are excluded."""
