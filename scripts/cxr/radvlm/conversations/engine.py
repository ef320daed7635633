"""The interface of engines that make conversations: modules ``cxr.radvlm.conversations.<name>`` with ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.engines import engine_module
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.record import GROUNDED, STANDARD, Conversation

ROUNDS = (5, 10)
"""Minimum and maximum of rounds (paper)."""
RETRIES = 4
"""Attempts of the engine rules after a conversation that fails the check."""


@dataclass(frozen=True)
class ConversationOptions:
    """Settings of the stage; own: settings of the language model (empty for ``rules``).

    rounds: minimum and maximum; per_image: conversations of each kind per image; most: maximum of standard ones in
    train; check: ``strict`` or ``json``; segment_turns: ask for masks that the ILS dataset has; retries: attempts after
    a failed check; kinds: kinds of the source.
    """

    engine: str
    per_image: int
    most: int
    check: str
    seed: int
    segment_turns: bool = True
    rounds: tuple[int, int] = ROUNDS
    retries: int = RETRIES
    kinds: Sequence[str] = (STANDARD, GROUNDED)
    own: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class ConversationRequest:
    """A requested conversation: the facts of its image, whether it is grounded, and its number of that kind."""

    facts: ImageFacts
    grounded: bool
    number: int = 0


@dataclass(frozen=True)
class ConversationOutcome:
    """The result of a request: a conversation, or the reason why there is none, with a detail."""

    conversation: Conversation | None = None
    reason: str = ""
    detail: str = ""


Converse = Callable[[Sequence[ConversationRequest]], list[ConversationOutcome]]
"""Takes requests; returns one :class:`ConversationOutcome` per request, in order."""


@dataclass(frozen=True)
class Engine:
    """An engine; made_by: its name, or the model and revision, for the output lines."""

    converse: Converse
    made_by: str


def load_engine(options: ConversationOptions, execution: Mapping) -> Engine:
    """Load the engine of the options. ``execution``: how to run its model. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.conversations", options.engine).load(options, execution)
