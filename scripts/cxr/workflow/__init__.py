"""What the rules and the command line need, and no stage: settings, params, code digests, checks before a run."""
