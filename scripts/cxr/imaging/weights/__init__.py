"""Downloading and converting published weights of engines with a large net, once."""
