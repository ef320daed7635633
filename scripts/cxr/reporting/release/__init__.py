"""Release: write a version of the dataset as a package, which is a folder that other tools can load."""
