"""Training of large nets in one or several processes, which write checkpoints and end on a stop signal."""
