"""Colours and saving of figures."""
