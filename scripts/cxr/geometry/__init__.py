"""Geometry of images: affine maps, boxes, their suppression and fusion, components, resizing, run-length encoding."""
