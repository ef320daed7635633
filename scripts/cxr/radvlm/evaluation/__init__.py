"""The stage radvlm_evaluation: scores answers, beside controls without the right image and the published scores."""
