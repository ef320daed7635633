"""The engine ``both`` uses the language model's edits, and compares them with the edits of the engine ``rules``."""

from collections.abc import Mapping
from dataclasses import replace

from cxr.radvlm.filtered import rules, vllm
from cxr.radvlm.filtered.engine import Engine, FilterOptions

GPU = vllm.GPU


def load(options: FilterOptions, execution: Mapping) -> Engine:
    """Return the engine ``vllm``, with ``rules`` as second filter. Raises UserError if the model cannot be reached."""
    return replace(vllm.load(options, execution), second_filter=rules.load(options, execution).filter)
