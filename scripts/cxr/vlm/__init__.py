"""Vision-language models: fine-tuning and inference, for the questions of any system."""
