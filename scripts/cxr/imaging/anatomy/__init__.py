"""Segmenting zones, lobes and heart on the edited image; images whose two sets of organs disagree are excluded."""
