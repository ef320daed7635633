"""The stage radvlm_evaluation: scores of answers, beside blind answers, exchanged pictures and the paper."""
