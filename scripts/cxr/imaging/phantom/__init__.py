"""The embedded cohort: synthetic chest X-rays, reports and files whose truth is known."""
