"""Writing a split in COCO's instance format, with masks as compressed run lengths, and as RefCOCO's ``refs.json``."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from cxr.geometry.boxes import bounding_box
from cxr.geometry.rle import encode_rle


def make_categories(names: Sequence[str], above: str) -> list[dict]:
    """Return COCO categories with these names, numbered from 1. ``above`` is their supercategory."""
    return [{"id": number, "name": name, "supercategory": above} for number, name in enumerate(names, 1)]


def mask_annotation(mask: np.ndarray) -> dict:
    """Return the COCO fields of a mask, bool (H, W): segmentation, area, bounding box."""
    x1, y1, x2, y2 = bounding_box(mask)
    box = [x1, y1, x2 - x1, y2 - y1]
    return {"segmentation": encode_rle(mask), "area": int(mask.sum()), "bbox": box, "iscrowd": 0}


class CocoWriter:
    """Writer of a split's COCO file, for use inside ``with``. ``kinds``: result of :func:`make_categories`.

    A second file buffers the annotations until all images are written."""

    def __init__(self, path: Path, info: dict, kinds: list[dict]):
        self._path, self._info, self._kinds = path, info, kinds
        self._numbers = {kind["name"]: kind["id"] for kind in kinds}
        self._waiting = path.with_suffix(".annotations")
        self._images = self._annotations = 0

    def __enter__(self) -> "CocoWriter":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = open(self._path, "w", encoding="utf-8", newline="\n")
        self._second: IO[str] = open(self._waiting, "w+", encoding="utf-8", newline="\n")
        head = {"info": self._info, "categories": self._kinds}
        self._file.write(json.dumps(head, ensure_ascii=False)[:-1] + ',\n"images": [')
        return self

    def image(self, **facts: object) -> int:
        """Add an image with the fields ``facts`` and return its id."""
        self._images += 1
        text = json.dumps({"id": self._images} | facts, ensure_ascii=False)
        self._file.write(f"{',' * (self._images > 1)}\n{text}")
        return self._images

    def add_annotation(self, image: int, target: str, mask_fields: dict, **facts: object) -> None:
        """Add an annotation of the category ``target`` to the image with id ``image``. Other arguments are fields."""
        self._annotations += 1
        numbers = {"id": self._annotations, "image_id": image, "category_id": self._numbers[target]}
        text = json.dumps(numbers | mask_fields | facts, ensure_ascii=False)
        self._second.write(f"{',' * (self._annotations > 1)}\n{text}")

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._file.write('\n],\n"annotations": [')
            self._second.seek(0)
            while text := self._second.read(1 << 20):
                self._file.write(text)
            self._file.write("\n]}\n")
        self._file.close()
        self._second.close()
        self._waiting.unlink()


def write_refs(path: Path, references: Iterable[tuple[str, str, Sequence[int], Mapping]]) -> None:
    """Write ``refs.json`` of RefCOCO. Each reference has one sentence, so ``sent_id`` equals ``ref_id``.

    A reference is (query id, text, ids of the annotations to which the text refers, {``image_id``, ``category_id``,
    ``split``, ``file_name``}). It may have several annotations, as in gRefCOCO."""
    ref_rows = []
    for number, (query_id, text, annotations, place) in enumerate(references):
        marks = ".,;:?!"
        tokens = [word.strip(marks).lower() for word in text.split() if word.strip(marks)]
        sentence = {"sent_id": number, "raw": text, "sent": text.lower(), "tokens": tokens}
        row = {"ref_id": number, "ann_ids": list(annotations), "ann_id": annotations[0], **place}
        ref_rows.append(row | {"sent_ids": [number], "sentences": [sentence], "query_id": query_id})
    path.write_text(json.dumps(ref_rows, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
