"""The interface of engines that make single-image text: modules ``cxr.radvlm.filtered.<name>`` with ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module

KEPT, REWRITTEN, DROPPED = ACTIONS = ("kept", "rewritten", "dropped")


@dataclass(frozen=True)
class FilterOptions:
    """Settings of the stage; own: settings of the language model (empty for ``rules``). resolved: ``drop`` or
    ``state_absence``; phrases: filter phrases with boxes too.
    """

    engine: str
    resolved: str
    own: Mapping = field(default_factory=dict)
    phrases: bool = True


@dataclass(frozen=True)
class Sentence:
    """A filtered sentence: text (None if dropped), action, and reasons of the change."""

    text: str | None
    action: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilteredText:
    """A filtered section: one :class:`Sentence` per sentence, or the problem why there is none."""

    sentences: tuple[Sentence, ...] = ()
    problem: str | None = None

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences if sentence.text)


Filter = Callable[[Sequence[Sequence[str]]], list[FilteredText]]  # filters sections, lists of sentences, in order


@dataclass(frozen=True)
class Engine:
    """An engine. made_by: its name, or the model and revision, for the output lines; second_filter: for the agreement
    table.
    """

    filter: Filter
    made_by: str
    second_filter: Filter | None = None


def load_engine(options: FilterOptions, execution: Mapping) -> Engine:
    """Load the engine of the options. ``execution``: how to run its model. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.filtered", options.engine).load(options, execution)
