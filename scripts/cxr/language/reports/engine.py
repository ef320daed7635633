"""The interface of engines that structure reports: modules ``cxr.language.reports.<name>`` with ``load(options)``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

Structure = Callable[[list[str]], list[dict]]
"""Takes the sentences of one section; returns tuples of :class:`cxr.language.reports.schema.Finding`, whose ``span``
counts characters of their own sentence. The same sentences give the same tuples."""


@dataclass(frozen=True)
class EngineOptions:
    """The inputs of an engine: a setting of the stage, and the files in its ``INPUTS``."""

    effusion_without_side: str
    files: dict[str, str] = field(default_factory=dict)


def load_engine(name: str, options: EngineOptions) -> Structure:
    """Return the engine's function. Raises UserError for an unknown name."""
    return engine_module("cxr.language.reports", name).load(options)
