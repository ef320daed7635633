"""Affine maps between an image and its frame, boxes and the choice among them, components, sizes, run lengths."""
