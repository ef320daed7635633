"""Codes of the reasons for which images and studies are excluded, each with an explanation for users."""

import tomllib

from cxr.base.paths import RESOURCES

STAGES = ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks", "dataset")
"""The stages that keep a ledger (a table of the images they exclude), in the order in which they process an image."""
MAP_STAGES = ("frames", "organs", "anomaly", "anatomy")  # stages that write arrays of every image

RESOURCE_FILES = ("reasons.toml",)
REASONS: dict[str, str] = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
"""{reason code: explanation} for the ledgers of all stages."""
