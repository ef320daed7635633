"""Instruction data of any system: the record of a sample, and its export formats."""
