"""Boxes: a detector's lesion boxes on the frame, whatever the lesion of the report."""
