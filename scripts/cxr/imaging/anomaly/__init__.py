"""Removing lesions from images to get counterfactual images, and mapping the brightness that was removed."""
