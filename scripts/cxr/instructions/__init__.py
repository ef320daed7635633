"""Questions and answers about images, in the form that all systems share: the record of a sample, export formats."""
