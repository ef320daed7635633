"""The interface of engines that make conversations: modules ``cxr.radvlm.conversations.<name>`` with ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.record import GROUNDED, STANDARD, Conversation


@dataclass(frozen=True)
class ConversationOptions:
    """Settings of the stage; own: those of the language model (empty for ``rules``).

    rounds: least and most; per_image: conversations of each kind; most: standard ones in train; check: ``strict`` or
    ``json``; segment_turns: masks are asked for where the dataset has them; retries: how often what fails the check is
    made again; kinds: that the source gives.
    """

    engine: str
    rounds: tuple[int, int]
    per_image: int
    most: int
    check: str
    segment_turns: bool
    seed: int
    retries: int = 2
    kinds: Sequence[str] = (STANDARD, GROUNDED)
    own: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class ConversationRequest:
    """A conversation that is asked for: the facts of its image, whether it is grounded, and its number of that kind."""

    facts: ImageFacts
    grounded: bool
    number: int = 0


@dataclass(frozen=True)
class ConversationOutcome:
    """What became of it: a conversation, or the reason and its detail for which there is none."""

    conversation: Conversation | None = None
    reason: str = ""
    detail: str = ""


Converse = Callable[[Sequence[ConversationRequest]], list[ConversationOutcome]]
"""Takes what is asked for; returns one :class:`ConversationOutcome` each, in order."""


@dataclass(frozen=True)
class Engine:
    """``converse`` does the work; ``made_by`` names the engine, or the model and its revision, in the lines."""

    converse: Converse
    made_by: str


def load_engine(options: ConversationOptions, execution: Mapping) -> Engine:
    """Return the engine of the options. ``execution``: how a model is run. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.conversations", options.engine).load(options, execution)
