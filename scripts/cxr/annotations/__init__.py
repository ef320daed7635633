"""Readers of public datasets' annotations. A format is a module that declares ``WHAT``
(:mod:`cxr.annotations.formats`)."""
