"""Copy the authors' layout from the dataset stage into a package, without withheld data.

Its JSON has one study per line, so only one study is in memory at a time.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cxr.base.atomic import link_file
from cxr.base.tables import read_table
from cxr.instructions.mimic_ils import JSON_NAME, MASK_FOLDER, write_studies
from cxr.reporting.release.withheld import Withheld

TEST = "test"


def copy_layout(source: Path, target: Path, images: str, withheld: Withheld, kept_pair_ids: set[str] | None) -> None:
    """Write the layout of the folder ``source`` into ``target``.

    ``images``: the table with each image's study; ``kept_pair_ids``: ids of the kept pairs of the test split.
    """
    studies = dict(read_table(images).select("image_id", "study_id").iter_rows())
    target.mkdir(parents=True, exist_ok=True)
    with open(source / JSON_NAME, "rb") as json_file:

        def published_studies(split: str, places: list[int]) -> Iterator[tuple[str, dict]]:
            for shown_key, place in _published_order(json_file, places, studies, withheld):
                key, entry = _read_entry(json_file, place)
                names = _filter_pairs(entry, key, studies[entry["dicom_id"]], kept_pair_ids if split == TEST else None)
                if names is None:
                    continue
                for name in sorted(names):
                    link_file(source / MASK_FOLDER / name, target / MASK_FOLDER / _rename_mask(name, key, shown_key))
                yield shown_key, _published_entry(entry, key, shown_key, withheld)

        write_studies(
            target / JSON_NAME,
            {split: published_studies(split, places) for split, places in _study_offsets(json_file).items()},
        )


def _study_offsets(json_file: BinaryIO) -> dict[str, list[int]]:
    """Return {split: file offsets of the studies' lines}."""
    offsets_by_split: dict[str, list[int]] = {}
    begin, split = 0, ""
    for line in json_file:
        text = line.strip()
        if text.endswith(b": {"):
            split = json.loads(text.removesuffix(b": {"))
            offsets_by_split[split] = []
        elif text.startswith(b'"'):
            offsets_by_split[split].append(begin)
        begin += len(line)
    return offsets_by_split


def _read_entry(json_file: BinaryIO, place: int) -> tuple[str, dict]:
    json_file.seek(place)
    ((key, entry),) = json.loads(b"{" + json_file.readline().strip().removesuffix(b",") + b"}").items()
    return key, entry


def _published_order(
    json_file: BinaryIO, places: list[int], studies: dict[str, str], withheld: Withheld
) -> Iterator[tuple[str, int]]:
    """Yield (published name of the study, its offset); sorted by these names if identifiers are withheld."""
    named_offsets = []
    for place in places:
        key, entry = _read_entry(json_file, place)
        named_offsets.append(
            (withheld.publish_id("study_id", studies[entry["dicom_id"]]) if withheld.ids else key, place)
        )
    yield from sorted(named_offsets) if withheld.ids else named_offsets


def _filter_pairs(entry: dict, key: str, study_id: str, kept_pair_ids: set[str] | None) -> set[str] | None:
    """Remove the pairs that are not kept; return the mask files of the remaining pairs, None if no pair remains."""
    pairs = entry["instruction_answer_pairs"]
    if kept_pair_ids is not None:
        for name, group in pairs.items():
            pairs[name] = [pair for pair in group if study_id + pair["pair_id"].removeprefix(key) in kept_pair_ids]
    remaining_pairs = [pair for group in pairs.values() for pair in group]
    return {pair["seg_mask_path"] for pair in remaining_pairs if pair["seg_mask_path"]} if remaining_pairs else None


def _rename_mask(name: str, key: str, shown_key: str) -> str:
    """Rename the study in the name of a mask, ``<study>/<study>_<target>_<k>.png``."""
    return f"{shown_key}/{shown_key}{name.split('/', 1)[1].removeprefix(key)}"


def _published_entry(entry: dict, key: str, shown_key: str, withheld: Withheld) -> dict:
    if withheld.report_text:
        entry["section_content"] = ""
    if withheld.ids:
        subject, image = (withheld.publish_id(name, entry[old]) for name, old in
                          (("subject_id", "subject_id"), ("image_id", "dicom_id")))  # fmt: skip
        entry |= {"subject_id": subject, "dicom_id": image,
                  "image_path": f"{subject[:3]}/{subject}/{shown_key}/{image}.jpg"}  # fmt: skip
        for pair in (pair for group in entry["instruction_answer_pairs"].values() for pair in group):
            pair["pair_id"] = shown_key + pair["pair_id"].removeprefix(key)
            if pair["seg_mask_path"]:
                pair["seg_mask_path"] = _rename_mask(pair["seg_mask_path"], key, shown_key)
    return entry
