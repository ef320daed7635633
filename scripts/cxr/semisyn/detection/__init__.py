"""The stage semisyn_detection: scores of detectors against people's boxes, and differences between them."""
