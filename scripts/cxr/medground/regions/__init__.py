"""The stage medground_regions: connected components become boxes with attributes."""
