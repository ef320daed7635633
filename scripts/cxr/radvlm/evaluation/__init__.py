"""The stage radvlm_evaluation: scores answers beside controls (no image, another image) and the published scores."""
