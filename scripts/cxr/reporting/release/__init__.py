"""Release: a dataset version as a package that other tools load."""
