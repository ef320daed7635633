"""The effect of thresholds: recall and yield of every named set and grid point (Tables 7 and 8)."""
