"""Segmenting the regions that [SEG] tokens of a language model refer to (LISA): projection, SAM, frames, losses."""
