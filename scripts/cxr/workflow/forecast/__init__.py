"""The forecast of a run: its input, the output of each system, the costs, and reasons to refuse the run."""
