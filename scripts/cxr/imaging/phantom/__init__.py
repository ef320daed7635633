"""Making the embedded cohort: synthetic chest X-rays and reports with known ground truth, for demos and tests."""
