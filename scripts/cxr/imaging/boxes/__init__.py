"""Detecting lesion boxes on frames, whatever the report states."""
