"""Placing findings: which healthy image each job uses, its prompt, and where its boxes lie."""
