"""A sample as the trainers of vision-language models read it: OpenAI's messages, ShareGPT, ms-swift.

The caller writes the texts; coordinates in them are its own choice. Boxes that a trainer converts itself (ms-swift) are
in pixels of the picture.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.atomic import atomic
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


def messages(one: Conversation) -> dict:
    """Return a line with OpenAI's roles: id, messages, images."""
    said = [
        {"role": role, "content": text}
        for number, turn in enumerate(one.turns)
        for role, text in (("user", _asked(one, number, turn)), ("assistant", turn.answer))
    ]
    return {"id": one.sample_id, "messages": said, "images": _pictures(one)} | dict(one.more)


def sharegpt(one: Conversation) -> dict:
    """Return an entry as LLaVA's trainers and LLaMA-Factory read it: id, image, images, conversations."""
    said = [
        {"from": who, "value": text}
        for number, turn in enumerate(one.turns)
        for who, text in (("human", _asked(one, number, turn)), ("gpt", turn.answer))
    ]
    first = {"image": one.picture} if one.picture else {}
    return {"id": one.sample_id} | first | {"images": _pictures(one), "conversations": said} | dict(one.more)


def swift(one: Conversation) -> dict:
    """Return a line of ms-swift's grounding: its templates scale the boxes and write them as each model wants them."""
    one_box = {"bbox_2d": "<bbox>"}
    answer = one_box if len(one.boxes) == 1 else [one_box] * len(one.boxes)
    text = json.dumps(answer).replace('"<bbox>"', "<bbox>")
    said = [{"role": "user", "content": f"{IMAGE}<ref-object>"}, {"role": "assistant", "content": text}]
    objects = {"ref": [one.refers], "bbox": [list(box) for box in one.boxes], "bbox_type": "real"}
    return {"id": one.sample_id, "messages": said, "images": _pictures(one), "objects": objects} | dict(one.more)


def write_entries(path: Path, entries: Iterable[dict]) -> None:
    """Write entries as one JSON list, an entry a line."""
    with atomic(path) as made, open(made, "w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        for number, entry in enumerate(entries):
            file.write(f"{',' * (number > 0)}\n{json.dumps(entry, ensure_ascii=False)}")
        file.write("\n]\n")


def _asked(one: Conversation, number: int, turn: Turn) -> str:
    return turn.question if number or not one.picture else IMAGE + turn.question


def _pictures(one: Conversation) -> list[str]:
    return [one.picture] if one.picture else []
