"""Affine maps between an image and its frame, boxes, run-length encoding."""
