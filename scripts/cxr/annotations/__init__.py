"""Annotations of public datasets: one module a format, each with a reader to one frame and a writer of its layout.

A module of this folder with a line ``WHAT = "…"`` is a format, by its name (:mod:`cxr.annotations.formats`).
"""
