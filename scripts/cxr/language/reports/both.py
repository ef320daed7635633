"""The engine "both", in which a language model reads only the reports that the rules engine hands over.

:mod:`cxr.language.reports.hand_over` selects these reports and decides which denials of the model count.
"""

from cxr.language.reports import vllm
from cxr.language.reports.engine import Structure

INPUTS = {"structured": "results/reports/structured/{shard}.jsonl", "mapping": "results/reports/mapping.jsonl"}
"""Input files, as for the engine vllm. ``structured`` has answers only for the reports that are handed over."""


def load(options) -> Structure:
    """Return the function that reads the reports that are handed over. ``options``: as for the engine vllm."""
    return vllm.load(options)
