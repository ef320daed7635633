"""Segmenting heart, lungs, zones and lobes on edited (lesion-free) images, and comparing them with the organ masks."""
