"""Decoding image files to frames: upright 8-bit images of 512 x 512 pixels."""
