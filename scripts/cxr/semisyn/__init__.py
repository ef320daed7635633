"""SemiSynCXR: puts findings into healthy X-rays and tests whether detectors trained on them improve."""
