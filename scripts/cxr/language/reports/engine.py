"""Interface of the engines that extract findings. Each engine is a module of this package with a function ``load``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

Structure = Callable[[list[str]], list[dict]]
"""A deterministic function that converts a section's sentences to :class:`cxr.language.reports.schema.Finding` dicts.
``span`` is the position of the finding within its sentence, in characters."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine: ``reports.effusion_without_side``, and ``files``, {key of its ``INPUTS``: path}."""

    effusion_without_side: str
    files: dict[str, str] = field(default_factory=dict)


def load_engine(name: str, options: EngineOptions) -> Structure:
    """Load the engine ``name`` and return its function that extracts findings. Raises UserError for an unknown name."""
    return engine_module("cxr.language.reports", name).load(options)
