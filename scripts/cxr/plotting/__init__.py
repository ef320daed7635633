"""Shared drawing: colours, overlays, numbered boxes, encoding of images, pages that replay conversations."""
