"""Explain every decision about one study, from the stored results only."""
