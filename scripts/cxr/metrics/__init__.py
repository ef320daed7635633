"""Measures of masks and boxes, and their intervals. They know arrays, and no stage."""
