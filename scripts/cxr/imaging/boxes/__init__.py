"""Detecting lesion boxes on frames. Reports are not used."""
