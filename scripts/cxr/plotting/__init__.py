"""Shared drawing: colours, overlays, numbered boxes, image encoding, replay pages."""
