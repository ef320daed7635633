"""The interface of the engines that edit texts. An engine is a module of this package with a function ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

KEPT, REWRITTEN, DROPPED = ACTIONS = ("kept", "rewritten", "dropped")


@dataclass(frozen=True)
class FilterOptions:
    """Settings of the stage radvlm_filtered."""

    engine: str  # name of the engine's module
    resolved: str  # treatment of findings that have resolved: drop or state_absence
    model: Mapping = field(default_factory=dict)  # settings of the language model; empty for the engine rules
    phrases: bool = True  # whether phrases with boxes are edited too


@dataclass(frozen=True)
class Sentence:
    """A sentence after editing."""

    text: str | None  # None if the sentence was dropped
    action: str  # kept, rewritten or dropped
    reasons: tuple[str, ...] = ()  # reasons of the edits, such as "comparison"


@dataclass(frozen=True)
class FilteredText:
    """A report section after editing."""

    sentences: tuple[Sentence, ...] = ()  # one for each sentence of the section
    problem: str | None = None  # why the section could not be edited; it then has no sentences

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences if sentence.text)


Filter = Callable[[Sequence[Sequence[str]]], list[FilteredText]]  # edits sections (lists of sentences), in order


@dataclass(frozen=True)
class Engine:
    """An engine that edits texts."""

    filter: Filter
    made_by: str  # for the output lines: name of the engine, or the model and its revision
    second_filter: Filter | None = None  # another filter, whose edits are only compared in the agreement table


def load_engine(options: FilterOptions, execution: Mapping) -> Engine:
    """Load the engine of the options. ``execution``: how to run its model. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.filtered", options.engine).load(options, execution)
