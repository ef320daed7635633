"""Load a paraphrase engine by name. An engine is a module of ``cxr.ils.paraphrase`` with a function ``load``."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cxr.base.engines import engine_module
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.templates import Instruction


@dataclass(frozen=True)
class Task:
    """An instruction to reword, as text and as parsed meaning."""

    text: str
    meaning: Instruction
    existing_wordings: Collection[str] = ()  # Wordings of other personas, which must not be repeated


@dataclass(frozen=True)
class Rewording:
    """The wordings that an engine gives for one :class:`Task`, or the reason why there are none."""

    wordings: tuple[str, ...] = ()
    problem: str | None = None  # Reason why there is no usable wording
    raw: str = ""  # The unusable text of the last attempt
    attempts: int = 1


Reword = Callable[[Sequence[Task], str], list[Rewording]]
"""Function of (tasks, persona) that returns one :class:`Rewording` per task, in order."""


@dataclass(frozen=True)
class Engine:
    """A paraphrase engine that is ready for use."""

    reword: Reword
    made_by: str  # Name of the engine, or of the model with its revision, as written into the results


def load_engine(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine named in ``options``; ``execution``: how to run a model. Raises UserError for unknown names."""
    return engine_module("cxr.ils.paraphrase", options.engine).load(options, execution)
