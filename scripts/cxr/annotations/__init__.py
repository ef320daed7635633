"""Annotations of public datasets. Each format is a module that declares ``WHAT`` (:mod:`cxr.annotations.formats`)."""
