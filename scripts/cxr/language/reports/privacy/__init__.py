"""Removal of identifiers of people (names, numbers, dates, signatures) and of markup from report text."""
