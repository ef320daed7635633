"""The stage semisyn_detectors: detectors trained on real, synthetic and control images."""
