"""Downloading and converting the published weights of the engines with a large net, once."""
