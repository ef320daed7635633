"""What trainings of large nets share: runners of one or several processes, their launcher, checkpoints, warnings."""
