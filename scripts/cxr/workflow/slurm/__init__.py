"""What the workflow knows of a SLURM cluster."""
