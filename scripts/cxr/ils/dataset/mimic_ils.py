"""Export the dataset in the layout of the authors' release, and import a release.

``mimic_ils_instruction_answer.json`` is {split (train, val, test): {study: entry}}. An entry has the report section
and the lists of positive and negative pairs. ``lesion_mask/<study>/<study>_<target>_<k>.png`` are the masks, 255 inside
the lesion. The name of a study is its id, with "s" in front if the id is all digits.

A release lacks the certainty, the zones that a mask confirms (grounded), the zones that a report names, and mask ids.
The import reads the certainty from the answers, uses the named location as the grounded one, and makes ids from pixels.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.atomic import atomic_folder
from cxr.base.columns import read_columns, schema
from cxr.base.errors import StoreError, UserError, existing_folder, refuse_unreadable
from cxr.base.hdf5 import FRAME_SIZE, Shards, ShardWriter, mask_id, pack
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.geometry.affine import to_original
from cxr.ils import templates
from cxr.ils.dataset.pairs import FIELDS
from cxr.instructions.mimic_ils import INDEX, JSON_NAME, MASK_FOLDER, make_index_table, write_studies

SPLIT_NAMES = {"train": "train", "validate": "val", "test": "test"}
LIST_BY_POLARITY = {True: "positive_pairs", False: "negative_pairs"}
RESOURCE_FILES = ("columns/dataset.toml",)
IMAGES = read_columns("dataset", "images")


def make_study_key(study_id: str) -> str:
    """Return the name of a study in a release: its id, with "s" in front if the id is all digits."""
    return f"s{study_id}" if study_id.isdecimal() else study_id


def make_study_entry(lines: list[dict]) -> tuple[dict, dict[str, str]]:
    """Return (entry of one study in a release, {mask path: mask_id}); ``lines``: dataset lines of the study's pairs."""
    first = lines[0]
    key, subject = make_study_key(first["study_id"]), first["subject_id"]
    folder = f"p{subject}" if subject.isdecimal() else subject
    names: dict[tuple[str, str], str] = {}
    numbers: Counter = Counter()
    entry: dict = {
        "subject_id": subject,
        "dicom_id": first["image_id"],
        # the path that the authors' loader expects
        "image_path": f"{folder[:3]}/{folder}/{key}/{first['image_id']}.jpg",
        "section_name": first["section_name"],
        "section_content": first["section_content"],
        "instruction_answer_pairs": {name: [] for name in LIST_BY_POLARITY.values()},
    }
    for line in lines:
        path = None
        if line["seg"]:
            target = line["target"]
            if (target, line["mask_id"]) not in names:
                names[target, line["mask_id"]] = f"{key}/{key}_{target}_{numbers[target]}.png"
                numbers[target] += 1
            path = names[target, line["mask_id"]]
        pair = {"pair_id": key + line["pair_id"].removeprefix(line["study_id"])}
        pair |= {name: line[name] for name in ("instruction", "answer", "type", "target", "location", "seg")}
        pair["seg_mask_path"] = path
        if line["seg"]:
            pair["sent_idx"] = "" if line["sentence_index"] is None else str(line["sentence_index"])
        entry["instruction_answer_pairs"][LIST_BY_POLARITY[line["seg"]]].append(pair)
    return entry, {path: identifier for (_, identifier), path in names.items()}


def write_layout(
    *,
    train: str,
    validate: str,
    test: str,
    masks: list[str],
    layout: str,
    frames: list[str] | None = None,
    pixels: str = "frame",
) -> None:
    """Write the dataset in the layout of the release into the folder ``layout``, which appears only when complete.

    ``train``, ``validate``, ``test``: files of pairs; ``masks``: files of mask shards; ``pixels``: "frame" for masks of
    512 x 512 pixels like the authors', or "original" for masks in original pixels, which needs the shards ``frames``.
    Raises UserError for data that the layout cannot represent, such as a study with several images.
    """
    frame_paths = (frames or []) if pixels == "original" else []
    with atomic_folder(layout) as folder, Shards(masks, "mask_id") as shards, Shards(frame_paths) as originals:
        (folder / MASK_FOLDER).mkdir()

        def studies(path: str) -> Iterator[tuple[str, dict]]:
            for image_id, key, entry, names in _read_split(path):
                for name, identifier in names.items():
                    mask = shards.get("mask", identifier)
                    if frame_paths:
                        shape, affine = (originals.get(each, image_id) for each in ("original_shape", "to_original"))
                        mask = to_original(mask.astype(np.uint8), affine, tuple(map(int, shape))).astype(bool)
                    _write_mask(folder / MASK_FOLDER / name, mask)
                yield key, entry

        lines = {"train": train, "validate": validate, "test": test}
        write_studies(folder / JSON_NAME, {SPLIT_NAMES[split]: studies(path) for split, path in lines.items()})


def _read_split(path: str) -> Iterator[tuple[str, str, dict, dict[str, str]]]:
    """Yield (image id, study name, entry, {mask path: mask_id}) for every study of a split."""
    study_keys: set[str] = set()
    for study_id, group in groupby(read_lines(path), key=lambda line: line["study_id"]):
        key = make_study_key(study_id)
        if key in study_keys:
            raise UserError(f"{path}: two studies would have the name {key} in the release: change the id of one")
        study_keys.add(key)
        lines = list(group)
        if len({line["image_id"] for line in lines}) > 1:
            raise UserError(f"the study {key} has several images, but a release has one: set frames.per_study to first")
        yield (lines[0]["image_id"], key, *make_study_entry(lines))


def _write_mask(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    # not cv2.imwrite, which fails without a reason
    path.write_bytes(cv2.imencode(".png", mask.astype(np.uint8) * 255)[1].tobytes())


def read_release(folder: str | Path) -> Iterator[tuple[dict, Path | None]]:
    """Yield (dataset line without mask id, mask file or None) for each pair. Raises UserError without a release."""
    folder, release = Path(folder), _read_release_json(folder)
    for split, name in SPLIT_NAMES.items():
        # undoes make_study_key
        studies = {re.sub(r"^s(?=\d+$)", "", key): entry for key, entry in release.get(name, {}).items()}
        for study_id in sorted(studies):
            yield from _make_lines(folder, split, study_id, studies[study_id])


def _read_release_json(folder: str | Path) -> dict:
    path = Path(folder) / JSON_NAME
    with refuse_unreadable(path, f"{folder} holds no readable {JSON_NAME}", "set dataset.mimic_ils to a release"):
        return json.loads(path.read_text(encoding="utf-8"))


def _list_images(release: dict, images: str) -> pl.DataFrame:
    root = existing_folder("dataset.mimic_ils_images", images).resolve()
    entries = [entry for name in SPLIT_NAMES.values() for entry in release.get(name, {}).values()]
    places = {entry["dicom_id"]: str(root / entry["image_path"]) for entry in entries}
    return pl.DataFrame(sorted(places.items()), schema=schema(IMAGES), orient="row")


def _make_lines(folder: Path, split: str, study_id: str, entry: dict) -> Iterator[tuple[dict, Path | None]]:
    for seg, name in LIST_BY_POLARITY.items():
        for pair in entry["instruction_answer_pairs"].get(name, []):
            path = folder / MASK_FOLDER / pair["seg_mask_path"] if pair.get("seg_mask_path") else None
            place = pair.get("location") or []
            location = [place] if isinstance(place, str) else list(place)
            values = {name: pair[name] for name in ("target", "instruction", "answer")}
            values |= {
                "pair_id": study_id + pair["pair_id"].removeprefix(make_study_key(study_id)),
                "subject_id": str(entry["subject_id"]),
                "study_id": study_id,
                "image_id": entry["dicom_id"],
                "split": split,
                "section_name": entry.get("section_name"),
                "section_content": entry.get("section_content"),
                "sentence_index": int(pair["sent_idx"]) if str(pair.get("sent_idx") or "").isdecimal() else None,
                "type": pair["type"].replace(" ", "_").replace("-", "_"),
                "certainty": parse_certainty(pair) if seg else None,
                "location": location,
                "grounded_location": location if seg and pair["target"] != templates.CARDIOMEGALY else [],
                "reported_location": [],
                "seg": seg,
                "mask_id": None,
            }
            yield {field: values.get(field) for field in FIELDS}, path


def parse_certainty(pair: dict) -> str | None:
    """Return a positive pair's certainty; None for cardiomegaly, a basic pair of target opacity, and other texts."""
    try:
        meaning = templates.parse_pair(pair["instruction"], pair["answer"])
    except ValueError:
        return None
    if meaning.type == templates.INFERENCE:
        return meaning.certainty
    if pair["target"] == templates.CARDIOMEGALY:
        return None
    if meaning.type == templates.GLOBAL:
        return "definitive"
    if meaning.word != pair["target"]:
        return "tentative"
    return None if meaning.word == templates.OPACITY else "definitive"


def import_layout(
    *,
    folder: str,
    train: str,
    validate: str,
    test: str,
    masks: str,
    index: str,
    pictures: str | None = None,
    images: str = "",
) -> None:
    """Import the release in ``folder``. Write a file of pairs per split, the shard ``masks`` and its ``index``.

    ``pictures``: table (image_id, path) to write for the release's images in the folder ``images``; None: no table.
    Raises StoreError for a missing or damaged mask, and UserError if masks differ in size or a folder is missing.
    """
    if pictures:
        write_table(pictures, _list_images(_read_release_json(folder), images), IMAGES)
    outputs = {"train": train, "validate": validate, "test": test}
    lines: dict[str, list[dict]] = {split: [] for split in outputs}
    packed: dict[str, np.ndarray] = {}
    shape: tuple[int, ...] | None = None
    for line, path in read_release(folder):
        if path is not None:
            image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) if path.is_file() else None
            if image is None:
                raise StoreError(f"{path} is missing or damaged: download the release's masks again")
            mask = image == 255
            shape = shape or mask.shape
            if mask.shape != shape or shape[1] % 8:
                fault = f"the mask {path} has the shape {mask.shape}, the first mask has {shape}"
                raise UserError(f"{fault}: give a release whose masks have one size, with a width divisible by 8")
            line["mask_id"] = mask_id(line["study_id"], pack(mask))
            packed[line["mask_id"]] = pack(mask)
        lines[line["split"]].append(line)
    shard = Path(masks).stem
    with ShardWriter(masks, key="mask_id", empty={"mask": (shape or (FRAME_SIZE, FRAME_SIZE), bool)}) as writer:
        for identifier in sorted(packed):
            writer.append(identifier, mask=np.unpackbits(packed[identifier], axis=-1).view(bool))
    rows = [(identifier, shard, row) for row, identifier in enumerate(sorted(packed))]
    write_table(index, make_index_table(rows), INDEX)
    for split, output in outputs.items():
        write_lines(output, lines[split])
