"""Instruction-answer pairs, made from report findings and lesion masks (ils.md section 7)."""
