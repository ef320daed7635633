"""Modules for the rules and the command line, which no stage imports: settings, params, code digests, checks."""
