"""Segmenting what a language model's [SEG] tokens refer to (LISA): projection, SAM, target frames, losses."""
