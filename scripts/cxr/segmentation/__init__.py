"""Segmentation of the region to which a language model's [SEG] token refers (LISA): projection, SAM, images, losses."""
