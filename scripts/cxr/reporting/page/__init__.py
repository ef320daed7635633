"""The results on one page: cases with reasons, values beside the paper's, and costs."""
