"""Paths of the repository's own files."""

from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
RESOURCES = SCRIPTS.parent / "resources"
