"""A mask for each [SEG] of a language model's answer: projection, SAM's decoder, target frames, losses (LISA)."""
