"""Decoding image files to canonical 8-bit frames."""
