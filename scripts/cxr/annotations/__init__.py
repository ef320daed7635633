"""Annotation files of public datasets, read into one form."""
