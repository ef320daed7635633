"""Annotations of public datasets. One module per format reads its files into one structure and writes its layout.

Each module of this folder with a line ``WHAT = "…"`` is a format of that name (:mod:`cxr.annotations.formats`).
"""
