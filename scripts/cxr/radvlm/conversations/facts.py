"""The facts of one image that a conversation may use, gathered from the tables and texts of its source."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from cxr.instructions.record import Box
from cxr.radvlm.labels import ABSENT, PRESENT
from cxr.radvlm.samples import group_boxes

LABEL, PHRASE = "label", "phrase"  # kinds of facts used in conversations
ID_COLUMNS = ("source", "image_id", "study_id", "subject_id", "split")
"""Columns of an image's row that its facts and conversations copy."""


@dataclass(frozen=True)
class Phrase:
    """A sentence, or part of a sentence, with its boxes."""

    text: str
    boxes: tuple[Box, ...]  # the largest first
    facts: tuple[str, ...] = ()  # fact ids of the boxes


@dataclass(frozen=True)
class ImageFacts:
    """The facts of one image. None and empty values mean unknown."""

    source: str
    image_id: str
    study_id: str
    subject_id: str
    split: str
    view: str | None = None  # PA, AP or another code
    sex: str | None = None  # F or M
    sentences: Mapping[int, str] = field(default_factory=dict)  # {number: sentence} of the edited report
    present: tuple[str, ...] = ()  # labels that the source states as present
    absent: tuple[str, ...] = ()  # labels that the source states as absent
    phrases: tuple[Phrase, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)  # {lesion type: mask_id} of the ILS dataset
    ids: Mapping[str, str] = field(default_factory=dict)  # {label: fact_id}


def gather_facts(
    images: pl.DataFrame, facts: pl.DataFrame, texts: Iterable[Mapping], phrases: Iterable[Mapping], masks: Mapping
) -> Iterator[ImageFacts]:
    """Yield the facts of each image, sorted by image. ``phrases``: edited phrases; ``masks``: from :func:`index_masks`.
    If the source annotates images of another source, ``facts`` and ``texts`` also contain those of that source."""
    images = images.sort("image_id")
    stated: dict[str, dict[str, str]] = {}
    ids: dict[str, dict[str, str]] = {}
    # the stated value, so that uncertain labels stay uncertain whatever radvlm.sources.uncertain is
    labels = facts.filter(kind=LABEL).join(images, on="image_id", how="semi")
    values = pl.coalesce("stated", "value")
    for image_id, name, value, fact_id in labels.select("image_id", "name", values, "fact_id").iter_rows():
        stated.setdefault(image_id, {})[name] = value
        ids.setdefault(image_id, {})[name] = fact_id
    line_by_image = {image_id: line for line in texts for image_id in line["image_ids"]}
    sizes = {row[0]: row[1:] for row in images.select("image_id", "rows", "columns").iter_rows() if all(row[1:])}
    text_by_group = {(line["image_id"], line["group"]): line["text"] for line in phrases}
    phrases_by_image: dict[str, list[Phrase]] = {}
    for boxes in sorted(group_boxes(facts, sizes, PHRASE), key=lambda boxes: (boxes.image_id, boxes.key)):
        text = text_by_group.get((boxes.image_id, boxes.key))
        if text is not None and boxes.boxes:
            phrase = Phrase(text, boxes.boxes, tuple(sorted((*boxes.facts, *boxes.flat))))
            phrases_by_image.setdefault(boxes.image_id, []).append(phrase)
    for row in images.iter_rows(named=True):
        image_id = row["image_id"]
        value_by_label, line = stated.get(image_id, {}), line_by_image.get(image_id, {"sentences": ()})
        yield ImageFacts(
            *(row[name] for name in ID_COLUMNS),
            view=row["view"] or None,
            sex=row["sex"],
            sentences={part["from"]: part["text"] for part in line["sentences"] if part["text"]},
            present=tuple(name for name, value in value_by_label.items() if value == PRESENT),
            absent=tuple(name for name, value in value_by_label.items() if value == ABSENT),
            phrases=tuple(phrases_by_image.get(image_id, ())),
            masks=masks.get(image_id, {}),
            ids=ids.get(image_id, {}),
        )


def index_masks(pairs: Iterable[Mapping]) -> dict[str, dict[str, str]]:
    """Return {image_id: {lesion type: mask_id}} from ILS questions, preferably from one without a location (global)."""
    masks_by_image: dict[str, dict[str, str]] = {}
    masked = [pair for pair in pairs if pair["seg"] and pair["mask_id"]]
    for pair in sorted(masked, key=lambda pair: (pair["type"] != "global", pair["pair_id"])):
        masks_by_image.setdefault(pair["image_id"], {}).setdefault(pair["target"], pair["mask_id"])
    return masks_by_image
