"""The engine both: a language model reads the reports that the rules hand over.

:mod:`cxr.language.reports.hand_over` decides which these are, and what may be denied of them.
"""

from cxr.language.reports import vllm
from cxr.language.reports.engine import Structure

INPUTS = {"structured": "results/reports/structured/{shard}.jsonl", "mapping": "results/reports/mapping.jsonl"}
"""As of the engine vllm; ``structured`` holds only the reports that are handed over."""


def load(options) -> Structure:
    """Return the language model's reading of the reports that are handed over. ``options``: as of the engine vllm."""
    return vllm.load(options)
