"""Editing images with a latent diffusion model: nets, noise schedule, edit-friendly inversion, sampling, blending."""
