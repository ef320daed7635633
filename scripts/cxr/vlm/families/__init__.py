"""Architectures of vision-language models: one module each, found by its name."""
