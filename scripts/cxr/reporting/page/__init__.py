"""Show the results on one page: example findings, values next to the paper's, and the time of the jobs."""
