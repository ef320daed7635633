"""Extraction of findings from reports: one section, its sentences, and a tuple per affirmed or denied finding."""
