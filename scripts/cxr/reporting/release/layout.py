"""Copy the authors' layout from the dataset stage into a package, without withheld data.

Its JSON holds one study per line, so only one study is in memory at a time.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cxr.base.atomic import link
from cxr.base.tables import read_table
from cxr.instructions.studies import JSON_NAME, MASK_FOLDER, write_studies
from cxr.reporting.release.withheld import Withheld

TEST = "test"


def copy_layout(source: Path, target: Path, images: str, withheld: Withheld, kept: set[str] | None) -> None:
    """Write the layout of the folder ``source`` into ``target``.

    ``images``: the table with each image's study; ``kept``: names of the kept pairs of the test split.
    """
    studies = dict(read_table(images).select("image_id", "study_id").iter_rows())
    target.mkdir(parents=True, exist_ok=True)
    with open(source / JSON_NAME, "rb") as held:

        def shown(split: str, places: list[int]) -> Iterator[tuple[str, dict]]:
            for shown_key, place in _ordered(held, places, studies, withheld):
                key, entry = _entry(held, place)
                names = _chosen(entry, key, studies[entry["dicom_id"]], kept if split == TEST else None)
                if names is None:
                    continue
                for name in sorted(names):
                    link(source / MASK_FOLDER / name, target / MASK_FOLDER / _renamed(name, key, shown_key))
                yield shown_key, _shown(entry, key, shown_key, withheld)

        write_studies(target / JSON_NAME, {split: shown(split, places) for split, places in _places(held).items()})


def _places(held: BinaryIO) -> dict[str, list[int]]:
    """Return {split: file offsets of the studies' lines}."""
    found: dict[str, list[int]] = {}
    begin, split = 0, ""
    for line in held:
        text = line.strip()
        if text.endswith(b": {"):
            split = json.loads(text.removesuffix(b": {"))
            found[split] = []
        elif text.startswith(b'"'):
            found[split].append(begin)
        begin += len(line)
    return found


def _entry(held: BinaryIO, place: int) -> tuple[str, dict]:
    held.seek(place)
    ((key, entry),) = json.loads(b"{" + held.readline().strip().removesuffix(b",") + b"}").items()
    return key, entry


def _ordered(
    held: BinaryIO, places: list[int], studies: dict[str, str], withheld: Withheld
) -> Iterator[tuple[str, int]]:
    """Yield (published name of the study, its offset); sorted by these names if identifiers are withheld."""
    named = []
    for place in places:
        key, entry = _entry(held, place)
        named.append((withheld.name("study_id", studies[entry["dicom_id"]]) if withheld.ids else key, place))
    yield from sorted(named) if withheld.ids else named


def _chosen(entry: dict, key: str, study_id: str, kept: set[str] | None) -> set[str] | None:
    """Remove the pairs that are not kept; return the mask files of the others, None if no pair is left."""
    pairs = entry["instruction_answer_pairs"]
    if kept is not None:
        for name, found in pairs.items():
            pairs[name] = [pair for pair in found if study_id + pair["pair_id"].removeprefix(key) in kept]
    every = [pair for found in pairs.values() for pair in found]
    return {pair["seg_mask_path"] for pair in every if pair["seg_mask_path"]} if every else None


def _renamed(name: str, key: str, shown_key: str) -> str:
    """Return the name of a mask, ``<study>/<study>_<target>_<k>.png``, with another name of the study."""
    return f"{shown_key}/{shown_key}{name.split('/', 1)[1].removeprefix(key)}"


def _shown(entry: dict, key: str, shown_key: str, withheld: Withheld) -> dict:
    if withheld.report_text:
        entry["section_content"] = ""
    if withheld.ids:
        subject, image = (withheld.name(name, entry[old]) for name, old in
                          (("subject_id", "subject_id"), ("image_id", "dicom_id")))  # fmt: skip
        entry |= {"subject_id": subject, "dicom_id": image,
                  "image_path": f"{subject[:3]}/{subject}/{shown_key}/{image}.jpg"}  # fmt: skip
        for pair in (pair for found in entry["instruction_answer_pairs"].values() for pair in found):
            pair["pair_id"] = shown_key + pair["pair_id"].removeprefix(key)
            if pair["seg_mask_path"]:
                pair["seg_mask_path"] = _renamed(pair["seg_mask_path"], key, shown_key)
    return entry
