"""The stage medground_regions, in which connected components become boxes with attributes."""
