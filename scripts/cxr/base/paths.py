"""Where the repository's own files are."""

from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
RESOURCES = SCRIPTS.parent / "resources"
