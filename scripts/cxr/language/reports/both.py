"""The engine ``both``. The rules engine reads all reports and hands some of them over to a language model.

:mod:`cxr.language.reports.hand_over` selects these reports and decides which denials of the model count.
"""

from cxr.language.reports import vllm
from cxr.language.reports.engine import Structure

INPUTS = {"structured": "results/reports/structured/{shard}.jsonl", "mapping": "results/reports/mapping.jsonl"}
"""Files that the engine reads besides the cohort, as for the engine ``vllm``. ``structured`` has the language model's
findings, here only for the reports that the rules engine hands over."""


def load(options) -> Structure:
    """Return the function that converts a section's sentences to finding tuples with the language model's answers. Use
    this function only for reports that the rules engine hands over. ``options``: an ``EngineOptions``."""
    return vllm.load(options)
