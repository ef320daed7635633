"""Load a paraphrase engine by name: a module ``cxr.ils.paraphrase.<name>`` with ``load(options)``."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cxr.base.engines import engine_module
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.templates import Instruction


@dataclass(frozen=True)
class Task:
    """An instruction to reword, with its meaning and the wordings that it already has."""

    text: str
    meaning: Instruction
    existing_wordings: Collection[str] = ()


@dataclass(frozen=True)
class Rewording:
    """An engine's result for a task: wordings, or the problem and the raw text of the last attempt."""

    wordings: tuple[str, ...] = ()
    problem: str | None = None
    raw: str = ""
    attempts: int = 1


Reword = Callable[[Sequence[Task], str], list[Rewording]]
"""Takes tasks and a persona; returns one :class:`Rewording` per task, in order."""


@dataclass(frozen=True)
class Engine:
    """The rewording function, and the engine's name or the model with its revision, for the lines."""

    reword: Reword
    made_by: str


def load_engine(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine of the options. ``execution``: how a model is run. Raises UserError for an unknown name."""
    return engine_module("cxr.ils.paraphrase", options.engine).load(options, execution)
