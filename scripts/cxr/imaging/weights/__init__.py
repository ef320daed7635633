"""The published weights of the engines with a large net, fetched or converted once."""
