"""How well masks, anomaly maps and boxes agree with human annotations."""
