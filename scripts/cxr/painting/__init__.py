"""Painters, which add synthetic findings to chest X-rays and return the exact masks of what they added."""
