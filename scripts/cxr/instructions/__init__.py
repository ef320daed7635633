"""Samples (questions and answers about an image) in the form that ILS, RadVLM and MedGround share, and their export."""
