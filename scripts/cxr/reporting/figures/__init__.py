"""Figures: one panel per study, the distribution of pairs, the funnel, recall over thresholds."""
