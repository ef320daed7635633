"""What MedGround's language models are shown: prompts, tables of measurements, pictures with boxes."""
