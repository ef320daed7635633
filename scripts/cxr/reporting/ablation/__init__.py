"""The effect of thresholds on recall and yield, for every named threshold set and grid point (Tables 7 and 8)."""
