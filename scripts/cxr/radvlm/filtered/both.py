"""Both engines: the language model's text counts; the rules engine's stands beside it in the table of agreement."""

from collections.abc import Mapping
from dataclasses import replace

from cxr.radvlm.filtered import rules, vllm
from cxr.radvlm.filtered.engine import Engine, FilterOptions

RESOURCE_FILES = vllm.RESOURCE_FILES
GPU = vllm.GPU
EXECUTION = vllm.EXECUTION


def load(options: FilterOptions, execution: Mapping) -> Engine:
    """Return the engine vllm with the engine rules beside it. Raises UserError if the model cannot be reached."""
    return replace(vllm.load(options, execution), second_filter=rules.load(options, execution).filter)
