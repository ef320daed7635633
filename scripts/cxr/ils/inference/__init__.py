"""Masks and answers of a trained ROSALIA, for a split of the dataset or one image."""
