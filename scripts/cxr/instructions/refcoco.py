"""Writing referring expressions in the layout of RefCOCO: ``refs.json`` beside ``instances.json``.

As in gRefCOCO, ``ann_ids`` is a list: an expression may mean several objects.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reference:
    """An expression: its text, its image's number, the numbers of the annotations and of the category that it means."""

    ref_id: str
    text: str
    image_id: int
    ann_ids: Sequence[int]
    category_id: int
    split: str
    file_name: str


def write_refs(path: Path, references: Sequence[Reference]) -> None:
    """Write the references, numbered in their order; ``sent_id`` equals ``ref_id``, since each has one sentence."""
    ref_rows = [
        {
            "ref_id": number,
            "ann_ids": list(reference.ann_ids),
            "ann_id": reference.ann_ids[0],
            "image_id": reference.image_id,
            "category_id": reference.category_id,
            "split": reference.split,
            "file_name": reference.file_name,
            "sent_ids": [number],
            "sentences": [
                {
                    "sent_id": number,
                    "raw": reference.text,
                    "sent": reference.text.lower(),
                    "tokens": _words(reference.text),
                }
            ],
            "query_id": reference.ref_id,
        }
        for number, reference in enumerate(references)
    ]
    path.write_text(json.dumps(ref_rows, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def _words(text: str) -> list[str]:
    return [word.strip(".,;:?!").lower() for word in text.split() if word.strip(".,;:?!")]
