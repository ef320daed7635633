"""Stages that read texts, shared by all systems."""
