"""The stage semisyn_detectors: trains detectors on real, synthetic and control images."""
