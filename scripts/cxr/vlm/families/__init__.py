"""Architectures of vision-language models: one module each, found by name."""
