"""Agreement of masks, anomaly maps and boxes with human annotations."""
