"""Segmenting zones, lobes and heart on the edited image. Images whose two sets of organ masks disagree are excluded."""
