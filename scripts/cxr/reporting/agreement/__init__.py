"""How well masks, anomaly maps and boxes agree with what people drew."""
