"""The interface of engines that make conversations. An engine is a module of this package with a function ``load``."""

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
    """A round of a conversation: a question and its answer."""

    question: str
    answer: str
    act: str = ""  # what the question asks for, such as "size"; "" if a language model wrote it
    wording: str = ""  # id of the template of the question; "" if a language model wrote it


@dataclass(frozen=True)
class Conversation:
    """A conversation about one image."""

    turns: tuple[Turn, ...]
    boxes: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)  # {slot name: boxes}
    mask_ids: tuple[str, ...] = ()  # masks of its [SEG] tokens, in order
    facts: tuple[str, ...] = ()  # ids of the facts that it uses

    def to_line(self, columns: Mapping, engine: str, digests: Mapping) -> dict:
        """Return the output line: ``columns`` (ids of conversation and image), ``engine``, ``digests`` and content."""
        boxes = {name: [list(box) for box in slot_boxes] for name, slot_boxes in self.boxes.items()}
        content = {"engine": engine, "turns": [asdict(turn) for turn in self.turns], "boxes": boxes}
        content |= {"mask_ids": list(self.mask_ids), "facts": list(self.facts), "digests": digests}
        return dict(columns) | content

    def to_messages(self) -> list[dict[str, str]]:
        """Return the messages {role, text}, in which boxes are written out."""
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
    """Replace each list of phrases' boxes in a text, such as "[…] and […]", by a placeholder such as
    ``<box:box 1>``. Return (texts, {name in the placeholder, such as "box 1": boxes})."""
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
    """Return the boxes in a text. A box is four numbers in brackets, such as "[0.10, 0.20, 0.30, 0.40]"."""
    return [tuple(map(float, corners)) for corners in BOX.findall(text)]


def round_box(box: Box) -> tuple[float, ...]:
    """Return a box rounded to the two decimals with which it is written."""
    return tuple(map(round_coordinate, box))


@dataclass(frozen=True)
class ConversationOptions:
    """Settings of the stage radvlm_conversations."""

    engine: str  # name of the engine's module
    per_image: int  # number of conversations of each kind per image
    most: int  # maximum number of train images with standard conversations
    check: str  # strict or json
    seed: int
    kinds: Sequence[str] = (STANDARD, GROUNDED)  # kinds of conversations that the source gets
    model: Mapping = field(default_factory=dict)  # settings of the language model; empty for the engine rules


@dataclass(frozen=True)
class Request:
    """A request for one conversation."""

    facts: ImageFacts  # facts of the image
    grounded: bool  # whether the answers contain boxes
    number: int = 0  # number among the requests of the same kind about the image

    @property
    def kind(self) -> str:
        return GROUNDED if self.grounded else STANDARD


@dataclass(frozen=True)
class Fault:
    """The reason why an engine makes no conversation for a request."""

    reason: str  # code of the reason, as in the table of exclusions
    detail: str = ""  # explanation, which never quotes the conversation


Converse = Callable[[Sequence[Request]], list[Conversation | Fault]]  # makes a conversation per request, in order


@dataclass(frozen=True)
class Engine:
    """An engine that makes conversations."""

    converse: Converse
    made_by: str  # for the output lines: name of the engine, or the model and its revision


def load_engine(options: ConversationOptions, execution: Mapping) -> Engine:
    """Load the engine of the options. ``execution``: how to run its model. Raises UserError for an unknown name."""
    return engine_module("cxr.radvlm.conversations", options.engine).load(options, execution)
