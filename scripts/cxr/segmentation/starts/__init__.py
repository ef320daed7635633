"""Sources of a segmenter's initial weights. Each module has ``load(hidden, file, seed)``, which returns a Segmenter."""
