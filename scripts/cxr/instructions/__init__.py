"""Instruction data of all systems: the record of a sample, and export formats."""
