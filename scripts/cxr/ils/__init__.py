"""ILS: lesion masks and instruction-answer pairs from X-rays and reports, and ROSALIA, the model trained on them."""
