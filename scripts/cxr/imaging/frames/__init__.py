"""From an image file to the canonical 8-bit frame."""
