"""One door to every engine that structures reports: a module ``cxr.language.reports.<name>`` with ``load(options)``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

Structure = Callable[[list[str]], list[dict]]
"""Sentences of one section in, tuples of :class:`cxr.language.reports.schema.Finding` out; ``span`` counts characters
of the tuple's own sentence. The same sentences give the same tuples."""


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is given: the lexicon's folder, a setting of the stage, and the files its ``INPUTS`` name."""

    lexicon: str
    effusion_without_side: str
    files: dict[str, str] = field(default_factory=dict)


def load(name: str, options: EngineOptions) -> Structure:
    """Return the engine's function. Raises UserError for an unknown name."""
    return engine_module("cxr.language.reports", name).load(options)
