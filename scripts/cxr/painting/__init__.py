"""Painters of findings in chest X-rays, which also return the exact masks."""
