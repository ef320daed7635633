"""Vision-language models: tuning and asking them, for the questions of any system."""
