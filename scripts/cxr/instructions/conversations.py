"""A sample as the trainers of vision-language models read it: OpenAI's messages, ShareGPT, ms-swift.

The caller writes the texts; coordinates in them are its own choice. Boxes that a trainer converts itself (ms-swift) are
in pixels of the picture.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.atomic import atomic_file
from cxr.instructions.record import Turn

IMAGE = "<image>"
"""Where the picture stands in the first question."""


@dataclass(frozen=True)
class Conversation:
    """A sample. picture: path of its picture, relative to the file, or empty where pixels are withheld; turns: their
    texts without marks of the picture; refers: what is asked for; boxes: (x1, y1, x2, y2), pixels of the picture; more:
    the system's own fields, which stand beside the trainer's.
    """

    sample_id: str
    picture: str
    turns: Sequence[Turn]
    refers: str = ""
    boxes: Sequence[Sequence[float]] = ()
    more: Mapping[str, object] = field(default_factory=dict)


def to_messages(conversation: Conversation) -> dict:
    """Return a line with OpenAI's roles: id, messages, images."""
    chat_messages = [
        {"role": role, "content": text}
        for number, turn in enumerate(conversation.turns)
        for role, text in (("user", _question_text(conversation, number, turn)), ("assistant", turn.answer))
    ]
    line = {"id": conversation.sample_id, "messages": chat_messages, "images": _pictures(conversation)}
    return line | dict(conversation.more)


def to_sharegpt(conversation: Conversation) -> dict:
    """Return an entry as LLaVA's trainers and LLaMA-Factory read it: id, image, images, conversations."""
    chat_turns = [
        {"from": speaker, "value": text}
        for number, turn in enumerate(conversation.turns)
        for speaker, text in (("human", _question_text(conversation, number, turn)), ("gpt", turn.answer))
    ]
    image_field = {"image": conversation.picture} if conversation.picture else {}
    return (
        {"id": conversation.sample_id}
        | image_field
        | {"images": _pictures(conversation), "conversations": chat_turns}
        | dict(conversation.more)
    )


def to_swift(conversation: Conversation) -> dict:
    """Return a line of ms-swift's grounding: its templates scale the boxes and write them as each model wants them."""
    one_box = {"bbox_2d": "<bbox>"}
    answer = one_box if len(conversation.boxes) == 1 else [one_box] * len(conversation.boxes)
    text = json.dumps(answer).replace('"<bbox>"', "<bbox>")
    chat_messages = [{"role": "user", "content": f"{IMAGE}<ref-object>"}, {"role": "assistant", "content": text}]
    objects = {"ref": [conversation.refers], "bbox": [list(box) for box in conversation.boxes], "bbox_type": "real"}
    return {
        "id": conversation.sample_id,
        "messages": chat_messages,
        "images": _pictures(conversation),
        "objects": objects,
    } | dict(conversation.more)


def write_entries(path: Path, entries: Iterable[dict]) -> None:
    """Write entries as one JSON list, an entry a line."""
    with atomic_file(path) as temporary_path, open(temporary_path, "w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        for number, entry in enumerate(entries):
            file.write(f"{',' * (number > 0)}\n{json.dumps(entry, ensure_ascii=False)}")
        file.write("\n]\n")


def _question_text(conversation: Conversation, number: int, turn: Turn) -> str:
    return turn.question if number or not conversation.picture else IMAGE + turn.question


def _pictures(conversation: Conversation) -> list[str]:
    return [conversation.picture] if conversation.picture else []
