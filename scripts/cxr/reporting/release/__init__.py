"""Release: write a version of the dataset as a package that other tools can load."""
