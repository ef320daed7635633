"""Prediction of masks and answers with a trained ROSALIA, for a split of the dataset or for one image file."""
