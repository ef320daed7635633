"""Release: write a dataset version as a package that other tools can load."""
