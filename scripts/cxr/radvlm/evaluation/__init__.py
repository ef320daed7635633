"""The stage radvlm_evaluation: scores answers beside the paper's scores, and beside answers without the right image."""
