"""Vision-language models: fine-tuning and inference, for questions of MedGround, RadVLM or the user."""
