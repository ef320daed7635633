"""Sources of a segmenter's initial weights: engines whose ``load(hidden, file, seed)`` returns a Segmenter."""
