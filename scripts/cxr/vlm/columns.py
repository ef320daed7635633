"""Columns of the tables that the stages of vision-language models write."""

from cxr.base.columns import read_columns

RESOURCE_FILES = ("columns/vlm.toml",)
UPDATES = read_columns("vlm", "updates")
EXCLUDED = read_columns("vlm", "excluded")
PROBES = read_columns("vlm", "probes")
UNUSED = read_columns("vlm", "unused")
SELECTED = read_columns("vlm", "selected")
