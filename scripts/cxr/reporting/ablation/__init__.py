"""The effect of the thresholds on recall and on the number of grounded masks (Tables 7 and 8)."""
