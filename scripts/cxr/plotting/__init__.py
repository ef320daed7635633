"""Colours of figures, and saving them."""
