"""The stage radvlm_evaluation: scores of answers, compared with blind answers, exchanged images and the paper."""
