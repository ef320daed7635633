"""Making the embedded cohort of synthetic chest X-rays and reports, whose ground truth is known."""
