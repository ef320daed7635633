"""Findings painted into a chest X-ray, with their exact masks."""
