"""The counterfactual image without lesions, and the anomaly map."""
