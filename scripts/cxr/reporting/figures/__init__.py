"""Figures: a panel per study, the distribution of pairs, the funnel, recall by threshold set."""
