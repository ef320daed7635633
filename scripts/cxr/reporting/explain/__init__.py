"""What was decided about one study and why, read from the stored results alone."""
