"""Structuring reports: one section of each, its sentences, and one tuple per affirmed or denied finding."""
