"""The embedded cohort: synthetic chest X-rays, reports and files with known truth."""
