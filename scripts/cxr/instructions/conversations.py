"""Converting samples to formats of vision-language trainers: OpenAI messages, ShareGPT, ms-swift (boxes in pixels)."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.atomic import atomic_file
from cxr.instructions.record import Turn

IMAGE = "<image>"  # placeholder of the image in the first question


@dataclass(frozen=True)
class Conversation:
    """A sample for export: an image and a conversation about it."""

    sample_id: str
    picture: str  # path of the image, relative to the exported file; "" if pixels are withheld
    turns: Sequence[Turn]  # texts without the placeholder of the image
    refers: str = ""  # expression that describes ``boxes``
    boxes: Sequence[Sequence[float]] = ()  # boxes (x1, y1, x2, y2) in pixels
    more: Mapping[str, object] = field(default_factory=dict)  # further fields of the exported line


def _speaker_texts(conversation: Conversation, *speakers: str) -> Iterator[tuple[str, str]]:
    """Yield (speaker, text) of all turns, with the image's placeholder first. ``speakers``: who asks, who answers."""
    image = IMAGE if conversation.picture else ""
    for number, turn in enumerate(conversation.turns):
        yield from zip(speakers, (turn.question if number else image + turn.question, turn.answer), strict=True)


def to_messages(conversation: Conversation) -> dict:
    """Convert a sample to a line in OpenAI's chat format, with the fields id, messages and images."""
    texts = _speaker_texts(conversation, "user", "assistant")
    chat_messages = [{"role": role, "content": text} for role, text in texts]
    line = {"id": conversation.sample_id, "messages": chat_messages, "images": _pictures(conversation)}
    return line | dict(conversation.more)


def to_sharegpt(conversation: Conversation) -> dict:
    """Convert a sample to ShareGPT's format (LLaVA, LLaMA-Factory), with fields id, image, images, conversations."""
    texts = _speaker_texts(conversation, "human", "gpt")
    chat_turns = [{"from": speaker, "value": text} for speaker, text in texts]
    image_field = {"image": conversation.picture} if conversation.picture else {}
    line = {"id": conversation.sample_id} | image_field
    return line | {"images": _pictures(conversation), "conversations": chat_turns} | dict(conversation.more)


def to_swift(conversation: Conversation) -> dict:
    """Convert a sample to a line for ms-swift, in which ``refers`` is the question and ``boxes`` are the answer."""
    one_box = {"bbox_2d": "<bbox>"}
    answer = one_box if len(conversation.boxes) == 1 else [one_box] * len(conversation.boxes)
    text = json.dumps(answer).replace('"<bbox>"', "<bbox>")
    chat_messages = [{"role": "user", "content": f"{IMAGE}<ref-object>"}, {"role": "assistant", "content": text}]
    objects = {"ref": [conversation.refers], "bbox": [list(box) for box in conversation.boxes], "bbox_type": "real"}
    line = {"id": conversation.sample_id, "messages": chat_messages, "images": _pictures(conversation)}
    return line | {"objects": objects} | dict(conversation.more)


def write_entries(path: Path, entries: Iterable[dict]) -> None:
    """Write entries as one JSON list, one entry per line."""
    with atomic_file(path) as temporary_path, open(temporary_path, "w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        for number, entry in enumerate(entries):
            file.write(f"{',' * (number > 0)}\n{json.dumps(entry, ensure_ascii=False)}")
        file.write("\n]\n")


def _pictures(conversation: Conversation) -> list[str]:
    return [conversation.picture] if conversation.picture else []
