"""Detecting lesion boxes on frames, independently of the report's lesions."""
