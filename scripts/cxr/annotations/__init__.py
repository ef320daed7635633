"""Annotations of public datasets: one module with a line ``WHAT = "…"`` per format (:mod:`cxr.annotations.formats`)."""
