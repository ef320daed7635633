"""Pictures for people: one panel a study, the distribution of pairs, the funnel, recall over thresholds."""
