"""Geometry of images: affine maps, boxes, non-maximum suppression, components, resizing, run-length encoding."""
