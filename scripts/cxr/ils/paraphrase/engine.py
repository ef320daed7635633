"""One door to every engine that rewords instructions: a module ``cxr.ils.paraphrase.<name>`` with ``load(options)``."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module
from cxr.ils.templates import Instruction


@dataclass(frozen=True)
class ParaphraseOptions:
    """Settings of the stage; own: those of the engine (empty for ``rules``).

    per_persona: wordings of each persona for each instruction.
    """

    engine: str
    personas: list[str]
    per_persona: int
    own: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """An instruction to be reworded: its text, its meaning, and the wordings that it has already."""

    text: str
    meant: Instruction
    taken: Collection[str] = ()


@dataclass(frozen=True)
class Reworded:
    """What an engine made of a task: wordings, or why there are none, with the raw text of the last attempt."""

    wordings: tuple[str, ...] = ()
    problem: str | None = None
    raw: str = ""
    attempts: int = 1


Reword = Callable[[Sequence[Task], str], list[Reworded]]
"""Tasks and a persona in, one :class:`Reworded` a task out, in their order."""


@dataclass(frozen=True)
class Engine:
    """``reword`` does the work; ``made_by`` is what the lines name: the engine, or the model and its revision."""

    reword: Reword
    made_by: str


def load(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine of the options. ``execution``: how a model is run. Raises UserError for an unknown name."""
    return engine_module("cxr.ils.paraphrase", options.engine).load(options, execution)
