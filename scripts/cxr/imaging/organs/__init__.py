"""Lungs and heart on the image itself; pictures that are no whole, usable chest stop here."""
