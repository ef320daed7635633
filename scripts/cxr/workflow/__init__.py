"""Code of the Snakefile and its rules: settings, options of stages, code digests, checks. No stage imports it."""
