"""Draw the figures of a run: a panel of each of some images, and charts of the pairs per lesion type."""
