"""Checks of a SLURM cluster."""
