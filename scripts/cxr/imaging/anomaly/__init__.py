"""Generating the counterfactual image without lesions, and the anomaly map."""
