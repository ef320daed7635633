"""Draw figures: panels with all results of an image, and charts of instruction-answer pairs per lesion type."""
