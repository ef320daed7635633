"""Questions to MedGround's language models: prompts, tables of measurements, images with boxes."""
