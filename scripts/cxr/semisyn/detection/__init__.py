"""The stage semisyn_detection: scores detectors against experts' boxes and compares them."""
