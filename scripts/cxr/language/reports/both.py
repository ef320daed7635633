"""The engine both: a language model reads the reports that the rules hand over.

:mod:`cxr.language.reports.hand_over` decides which reports these are and which denials of the model count.
"""

from cxr.language.reports import vllm
from cxr.language.reports.engine import Structure

INPUTS = {"structured": "results/reports/structured/{shard}.jsonl", "mapping": "results/reports/mapping.jsonl"}
"""As for the engine vllm, but ``structured`` holds only the reports that are handed over."""


def load(options) -> Structure:
    """Return the function that reads the reports handed over. ``options``: as for the engine vllm."""
    return vllm.load(options)
