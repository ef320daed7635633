"""Removing what identifies a person from report text: names, numbers, dates, signatures, markup."""
