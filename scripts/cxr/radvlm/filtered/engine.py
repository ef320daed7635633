"""The interface of engines that make single-image text: modules ``cxr.radvlm.filtered.<name>`` with ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

KEPT, REWRITTEN, DROPPED = ACTIONS = ("kept", "rewritten", "dropped")


@dataclass(frozen=True)
class FilterOptions:
    """Settings of the stage; own: those of the language model (empty for ``rules``).

    keep_view: views and projections stay; resolved: ``drop`` or ``state_absence``; min_words: a shorter remainder is
    nothing; phrases: phrases with boxes are filtered too.
    """

    engine: str
    keep_view: bool
    resolved: str
    min_words: int
    phrases: bool
    own: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Sentence:
    """What became of a sentence: its text (None: dropped), the action, and the reasons of a change."""

    text: str | None
    action: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilteredText:
    """What became of a section: one :class:`Sentence` each, or the problem for which there is none."""

    sentences: tuple[Sentence, ...] = ()
    problem: str | None = None

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences if sentence.text)


Filter = Callable[[Sequence[Sequence[str]]], list[FilteredText]]
"""Takes the sentences of sections; returns one :class:`FilteredText` per section, in order."""


@dataclass(frozen=True)
class Engine:
    """``filter`` does the work; ``made_by`` names the engine, or the model and its revision, in the lines.

    beside: another engine's work, for the table of agreement.
    """

    filter: Filter
    made_by: str
    second_filter: Filter | None = None


def load_engine(options: FilterOptions, execution: Mapping) -> Engine:
    """Return the engine of the options. ``execution``: how a model is run. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.filtered", options.engine).load(options, execution)
