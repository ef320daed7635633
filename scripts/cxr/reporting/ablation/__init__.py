"""The effect of mask thresholds on recall and on the number of masks in reported locations (Tables 7 and 8)."""
