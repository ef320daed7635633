"""SemiSynCXR: puts findings into healthy X-rays and tests whether training on them improves detectors."""
