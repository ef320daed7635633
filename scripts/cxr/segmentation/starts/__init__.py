"""Where a segmenter's SAM comes from: an engine each, whose ``load(hidden, file, seed)`` returns a Segmenter."""
