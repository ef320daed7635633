"""The interface of engines that make conversations: modules ``cxr.radvlm.conversations.<name>`` with ``load``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from cxr.base.engines import engine_module
from cxr.instructions.record import Box
from cxr.radvlm.conversations.facts import ImageFacts, Phrase
from cxr.radvlm.samples import box_slot, round_coordinate, write_slots

STANDARD, GROUNDED = "standard", "grounded"


@dataclass(frozen=True)
class Turn:
    """A round. act: what the question asks for; wording: id of its template; both empty for a language model."""

    question: str
    answer: str
    act: str = ""
    wording: str = ""


@dataclass(frozen=True)
class Conversation:
    """A conversation; boxes: {slot name: boxes}; mask_ids: masks of its [SEG] tokens, in order; facts: fact ids."""

    turns: tuple[Turn, ...]
    boxes: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)
    mask_ids: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def to_line(self, columns: Mapping, engine: str, digests: Mapping) -> dict:
        """Return the output line. ``columns``: ids of its image."""
        boxes = {name: [list(box) for box in slot_boxes] for name, slot_boxes in self.boxes.items()}
        content = {"engine": engine, "turns": [asdict(turn) for turn in self.turns], "boxes": boxes}
        content |= {"mask_ids": list(self.mask_ids), "facts": list(self.facts), "digests": digests}
        return dict(columns) | content

    def to_messages(self) -> list[dict[str, str]]:
        """Return the messages, with boxes written out."""
        return [
            {"role": role, "text": write_slots(text, self.boxes)}
            for turn in self.turns
            for role, text in (("user", turn.question), ("assistant", turn.answer))
        ]


_NUMBER = r"-?\d+(?:\.\d+)?"
BOX = re.compile(r"\[\s*" + r"\s*,\s*".join([f"({_NUMBER})"] * 4) + r"\s*\]")  # a box as it is written
_BOX_LIST = re.compile(rf"{BOX.pattern}(?:(?:,| and|, and) {BOX.pattern})*".replace(f"({_NUMBER})", _NUMBER))
ROUNDS = (5, 10)  # minimum and maximum number of rounds (paper)
TOO_FEW = "too_few_facts"


def replace_boxes_by_slots(
    texts: Sequence[str], phrases: Sequence[Phrase]
) -> tuple[list[str], dict[str, tuple[Box, ...]]]:
    """Replace written boxes of phrases by slots, one for consecutive boxes; return the texts and {slot: boxes}."""
    exact = {round_box(box): box for phrase in phrases for box in phrase.boxes}
    names: dict[tuple[Box, ...], str] = {}

    def slotted(hit: re.Match) -> str:
        written_boxes = parse_boxes(hit.group())
        if not all(box in exact for box in written_boxes):
            return hit.group()
        boxes = tuple(exact[box] for box in written_boxes)
        return box_slot(names.setdefault(boxes, f"box {len(names) + 1}"))

    slotted_texts = [_BOX_LIST.sub(slotted, text) for text in texts]
    return slotted_texts, {name: boxes for boxes, name in names.items()}


def parse_boxes(text: str) -> list[tuple[float, ...]]:
    """Return the boxes in a text, as written."""
    return [tuple(map(float, corners)) for corners in BOX.findall(text)]


def round_box(box: Box) -> tuple[float, ...]:
    """Round a box to the two decimals that are written."""
    return tuple(map(round_coordinate, box))


@dataclass(frozen=True)
class ConversationOptions:
    """Settings of the stage; own: settings of the language model (empty for ``rules``). per_image: conversations of
    each kind per image; most: maximum number of standard ones in train; kinds: kinds that the source gets.
    """

    engine: str
    per_image: int
    most: int
    check: str
    seed: int
    kinds: Sequence[str] = (STANDARD, GROUNDED)
    own: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A requested conversation: facts of its image, whether it is grounded, and its number among those of its kind."""

    facts: ImageFacts
    grounded: bool
    number: int = 0

    @property
    def kind(self) -> str:
        return GROUNDED if self.grounded else STANDARD


@dataclass(frozen=True)
class Fault:
    """The reason why there is no conversation; the detail never quotes its text."""

    reason: str
    detail: str = ""


Converse = Callable[[Sequence[Request]], list[Conversation | Fault]]  # makes a conversation per request, in order


@dataclass(frozen=True)
class Engine:
    """An engine; made_by: its name, or the model and revision, for the output lines."""

    converse: Converse
    made_by: str


def load_engine(options: ConversationOptions, execution: Mapping) -> Engine:
    """Load the engine of the options. ``execution``: how to run its model. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.conversations", options.engine).load(options, execution)
