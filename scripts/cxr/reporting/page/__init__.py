"""Show the results on one page: cases with reasons, values next to the paper's, and costs."""
