"""Detecting lesion boxes on frames, independently of the lesions that the report states."""
