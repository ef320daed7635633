"""Instruction-answer pairs, made from report findings and lesion masks."""
