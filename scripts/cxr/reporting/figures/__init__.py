"""Draw the figures of a run: panels of some images, and the distribution of pairs."""
