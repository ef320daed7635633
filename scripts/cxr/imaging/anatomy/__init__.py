"""Segmenting zones, lobes and heart on the edited image; images with contradictory organ masks are excluded."""
