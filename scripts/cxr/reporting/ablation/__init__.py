"""The effect of thresholds: recall and yield of every named set and grid point (ils.md section 5, Tables 7 and 8)."""
