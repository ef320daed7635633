"""Readers of public datasets' annotations. Each module that declares ``WHAT`` reads one format
(:mod:`cxr.annotations.formats`)."""
