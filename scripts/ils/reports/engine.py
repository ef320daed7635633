"""One door to every engine that structures reports: a module ``ils.reports.<name>`` with ``load(options)``."""

from collections.abc import Callable
from importlib import import_module

from ils.core.run import UserError

Structure = Callable[[list[str]], list[dict]]
"""Sentences of one section in, tuples of :class:`ils.reports.schema.Finding` out; ``span`` counts characters of the
tuple's own sentence. The same sentences give the same tuples."""

ENGINES = ("rules",)


def load(name: str, options: object) -> Structure:
    """Return the engine's function. Raises UserError for an unknown name."""
    if name not in ENGINES:
        raise UserError(f"reports.engine: {name!r} is not an engine, choose one of {', '.join(ENGINES)}")
    return import_module(f"ils.reports.{name}").load(options)
