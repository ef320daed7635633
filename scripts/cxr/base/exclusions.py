"""Reason codes for the exclusion of an image or a study, each with a sentence for the person who can correct it."""

import tomllib

from cxr.base.paths import RESOURCES

STAGES = ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks", "dataset")
"""The stages that keep a ledger (a table of excluded images), in the order in which they process an image."""
MAP_STAGES = ("frames", "organs", "anomaly", "anatomy")  # stages that write arrays of every image

RESOURCE_FILES = ("reasons.toml",)
REASONS: dict[str, str] = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
"""{reason code: explanation} for all ledgers."""
