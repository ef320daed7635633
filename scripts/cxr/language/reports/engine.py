"""Interface of the engines that structure reports: modules ``cxr.language.reports.<name>`` with ``load(options)``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

Structure = Callable[[list[str]], list[dict]]
"""Converts the sentences of a section to :class:`cxr.language.reports.schema.Finding` tuples (as dicts),
deterministically. A ``span`` counts characters within its sentence."""


@dataclass(frozen=True)
class EngineOptions:
    """Inputs of an engine: the setting ``effusion_without_side``, and {name: path} of the files in ``INPUTS``."""

    effusion_without_side: str
    files: dict[str, str] = field(default_factory=dict)


def load_engine(name: str, options: EngineOptions) -> Structure:
    """Load an engine and return its function. Raises UserError for an unknown name."""
    return engine_module("cxr.language.reports", name).load(options)
