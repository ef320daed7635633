"""Figures: a panel per study, and the distribution of pairs."""
