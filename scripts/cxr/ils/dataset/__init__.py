"""Instruction-answer pairs: language meets masks (ils.md section 7)."""
