"""Architectures of vision-language models. Each has one module, which is found by its name."""
