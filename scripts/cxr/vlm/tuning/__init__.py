"""Tuning: a vision-language model fine-tuned on samples, by adapters or in full."""
