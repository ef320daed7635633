"""Fine-tuning of a vision-language model on samples, by adapters or in full."""
