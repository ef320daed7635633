"""Training of large nets: runners for one or several processes, their launcher, checkpoints, signals."""
