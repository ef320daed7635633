"""Segmentation of the region that a language model's [SEG] token refers to (LISA): projection, SAM, images, losses."""
