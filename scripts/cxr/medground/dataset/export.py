"""Export of the dataset in formats of other tools: one folder per format, with the images as PNG."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import yaml

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.instructions.coco import CocoWriter, ReferringExpression, make_categories, write_refs
from cxr.instructions.conversations import Conversation, to_messages, to_sharegpt, to_swift, write_entries
from cxr.instructions.record import Turn
from cxr.plotting.encoding import encode_image
from cxr.vlm.conventions import InputSize, find_convention
from cxr.vlm.wording import localization_question

SIDES = ("x1", "y1", "x2", "y2")
MERGE, MIN_PIXELS = 2, 3136
"""Of the processors of the Qwen family: patches per side that become one token, and smallest area of an image, px."""
COPIED_FIELDS = ("query_id", "source", "split", "domain", "modality", "licence", "kind", "trivial")
"""Fields of a line that every format includes."""
PARQUET = {
    "query_id": pl.String,
    "image": pl.Struct({"bytes": pl.Binary, "path": pl.String}),
    "query": pl.String,
    "boxes": pl.List(pl.List(pl.Float64)),
    "grid": pl.List(pl.List(pl.Int64)),
    **dict.fromkeys(("source", "domain", "modality", "licence", "kind", "image_id"), pl.String),
}
"""Columns of the format hf; boxes in pixels of the picture."""


@dataclass(frozen=True)
class ExportOptions:
    """format: messages, sharegpt, swift, coco, refcoco or hf; coordinates: of the texts; withhold: ``pixels``; patch,
    merge, min_pixels, max_pixels: of ``pixels_resized``; the rest as ``medground.dataset``.
    """

    format: str
    coordinates: str
    withhold: list[str]
    allow_nd: bool
    audited: bool
    resized: dict
    sources: list[str]
    shards: list[str]


@dataclass(frozen=True)
class ExportedLine:
    """A line with its image's name and size (px), and its boxes in pixels."""

    line: Mapping
    name: str
    width: int
    height: int
    boxes: list[list[float]]
    labels: list[str]

    @property
    def file(self) -> str:
        return f"images/{self.line['source']}/{self.name}.png"


def forbids_derivatives(licence: str) -> bool:
    """Return whether a licence forbids to distribute derivatives of the images, as CC BY-NC-ND does."""
    return "ND" in licence.upper().replace("-", " ").split()


def keep_audited(lines: Sequence[dict], audit: str) -> list[dict]:
    """Return the lines that experts accepted. Raises UserError for a vote on an unknown query.

    ``audit``: the table audit.parquet of the stage review.
    """
    votes = dict(read_table(audit).select("query_id", "accepted").iter_rows())
    if missing_ids := sorted(votes.keys() - {line["query_id"] for line in lines}):
        raise UserError(
            f"medground.audit: {len(missing_ids)} judged queries stand no longer, {missing_ids[0]} is one: give the "
            "audit of this dataset"
        )
    return [line for line in lines if votes.get(line["query_id"])]


def resized_sides(
    width: int, height: int, patch: int, max_pixels: int, merge: int = MERGE, min_pixels: int = MIN_PIXELS
) -> InputSize:
    """Return the size, in multiples of ``patch * merge``, to which Qwen's processors resize an image.

    Each side is rounded. If the area is then outside ``min_pixels`` to ``max_pixels``, both sides are scaled to the
    limit and rounded up or down.
    """
    unit = patch * merge
    sides = np.array([width, height], np.float64)
    resized = np.maximum(unit, np.round(sides / unit) * unit)
    if resized.prod() > max_pixels:
        resized = np.maximum(unit, np.floor(sides * np.sqrt(max_pixels / sides.prod()) / unit) * unit)
    elif resized.prod() < min_pixels:
        resized = np.ceil(sides * np.sqrt(min_pixels / sides.prod()) / unit) * unit
    return InputSize(int(resized[0]), int(resized[1]))


def run(
    *, lines: list[str], regions: list[str], sources: list[str], folder: str, options: ExportOptions,
    audit: list[str] | None = None,
) -> None:  # fmt: skip
    """Write one format into ``folder``, whole or not at all.

    ``lines``: files of the splits, and zero_shot; ``regions``, ``sources``: for each source and shard; ``audit``: the
    experts' votes, by which the test split is filtered. Raises UserError.
    """
    lines_by_split = {Path(path).stem: list(read_lines(path)) for path in lines}
    excluded_by_reason: Counter = Counter()
    if options.audited:
        accepted_lines = keep_audited(lines_by_split["test"], (audit or [""])[0])
        excluded_by_reason["test lines that are not audited or were not accepted"] = len(lines_by_split["test"]) - len(
            accepted_lines
        )
        lines_by_split["test"] = accepted_lines
    if "pixels" not in options.withhold and not options.allow_nd:
        for name, split_lines in lines_by_split.items():
            lines_by_split[name] = [line for line in split_lines if not forbids_derivatives(line["licence"])]
            excluded_by_reason["lines whose licence forbids derivatives"] += len(split_lines) - len(
                lines_by_split[name]
            )
    with atomic_folder(folder) as staging_dir:
        samples_by_split = _read_samples(lines_by_split, regions, sources, staging_dir, options)
        {
            "messages": _write_messages,
            "swift": _write_swift,
            "sharegpt": _write_sharegpt,
            "coco": _write_coco,
            "refcoco": _write_refcoco,
            "hf": _write_hf,
        }[options.format](staging_dir, samples_by_split, options)
        head = (staging_dir / "README.md").read_text(encoding="utf-8") if (staging_dir / "README.md").is_file() else ""
        (staging_dir / "README.md").write_text(
            head + _readme(samples_by_split, excluded_by_reason, options), encoding="utf-8"
        )


def _read_samples(
    lines_by_split: Mapping[str, list[dict]], regions: Sequence[str], sources: Sequence[str], folder: Path,
    options: ExportOptions,
) -> dict[str, list[ExportedLine]]:  # fmt: skip
    """Return {file of lines: lines with their boxes in pixels}, and write the pictures."""
    image_keys = {(line["source"], line["image_id"]) for split_lines in lines_by_split.values() for line in split_lines}
    boxes: dict[tuple[str, str], dict[int, Mapping]] = defaultdict(dict)
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    count = len(options.shards)
    for number, (table, shard_file) in enumerate(zip(regions, sources, strict=True)):
        source = options.sources[number // count]
        for row in read_table(table).iter_rows(named=True):
            if (source, row["image_id"]) in image_keys:
                boxes[source, row["image_id"]][row["region"]] = row
        with Shard(shard_file) as shard:
            for image_id in shard.ids:
                if (source, image_id) in image_keys:
                    picture = shard.get("picture", image_id)
                    sizes[source, image_id] = picture.shape[1], picture.shape[0]
                    _write_image(folder / f"images/{source}/{image_id}.png", picture, options)
    samples_by_split: dict[str, list[ExportedLine]] = {}
    for name, split_lines in lines_by_split.items():
        samples_by_split[name] = []
        for line in split_lines:
            key = line["source"], line["image_id"]
            region_rows = [boxes[key][region] for region in line["regions"]]
            placed = [[float(row[side]) for side in SIDES] for row in region_rows]
            samples_by_split[name].append(
                ExportedLine(line, key[1], *sizes[key], placed, [row["label"] for row in region_rows])
            )
    return samples_by_split


def _write_image(path: Path, picture: np.ndarray, options: ExportOptions) -> None:
    if "pixels" in options.withhold:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(".png", picture[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 3]))


def to_conversation(sample: ExportedLine, options: ExportOptions) -> Conversation:
    """Return a line as a question and an answer with boxes, in the options' coordinates."""
    line = sample.line
    picture_size = InputSize(sample.width, sample.height)
    if options.coordinates == "pixels_resized":
        picture_size = resized_sides(sample.width, sample.height, **options.resized)
    convention = find_convention("grid1000" if options.coordinates == "grid1000" else "pixels_resized")
    fractions = np.array(line["boxes"], np.float64) / 1000
    if options.coordinates == "pixels_original":
        boxes = [[int(np.floor(value + 0.5)) for value in box] for box in line["boxes_px"]]
        box_entries = [{"bbox_2d": box} for box in boxes]
        answer = json.dumps(box_entries[0] if len(box_entries) == 1 else box_entries)
    else:
        answer = convention.answer(fractions.tolist(), picture_size)
    question = localization_question(line["query"], convention)
    picture = "" if "pixels" in options.withhold else sample.file
    extra_fields = {name: line[name] for name in COPIED_FIELDS if name != "query_id"}
    return Conversation(line["query_id"], picture, [Turn(question, answer)], line["query"], sample.boxes, extra_fields)


def _write_splits(
    writer: Callable[[Path, Iterator[Conversation]], None], folder: Path, samples_by_split, options, ending: str
):
    for name, samples in samples_by_split.items():
        writer(folder / f"{name}{ending}", (to_conversation(sample, options) for sample in samples))


def _write_messages(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    _write_splits(
        lambda path, conversations: write_lines(path, map(to_messages, conversations)),
        folder,
        samples_by_split,
        options,
        ".jsonl",
    )


def _write_swift(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    _write_splits(
        lambda path, conversations: write_lines(path, map(to_swift, conversations)),
        folder,
        samples_by_split,
        options,
        ".jsonl",
    )


def _write_sharegpt(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    _write_splits(
        lambda path, conversations: write_entries(path, map(to_sharegpt, conversations)),
        folder,
        samples_by_split,
        options,
        ".json",
    )


def _write_coco(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    for name, samples in samples_by_split.items():
        _write_instances(folder / f"instances_{name}.json", samples)


def _write_instances(path: Path, samples: Sequence[ExportedLine]) -> dict[tuple[str, str, int], tuple[int, int, int]]:
    """Write the file of one split; returns {(source, image, region): numbers of annotation, image, category}."""
    labels = sorted({label for sample in samples for label in sample.labels})
    kinds = make_categories(labels, "region")
    numbers = {kind["name"]: kind["id"] for kind in kinds}
    images: dict[tuple[str, str], list[ExportedLine]] = defaultdict(list)
    for sample in samples:
        images[sample.line["source"], sample.line["image_id"]].append(sample)
    numbers_by_region: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    with CocoWriter(path, {"description": "MedGround: boxes that verified queries mean"}, kinds) as writer:
        for key, image_samples in images.items():
            first = image_samples[0]
            image_fields = {name: first.line[name] for name in ("source", "domain", "licence")}
            image = writer.image(file_name=first.file, width=first.width, height=first.height, **image_fields)
            query_ids_by_region = defaultdict(list)
            box_by_region = {}
            for sample in image_samples:
                for region, box, label in zip(sample.line["regions"], sample.boxes, sample.labels, strict=True):
                    query_ids_by_region[region].append(sample.line["query_id"])
                    box_by_region[region] = box, label
            for region in sorted(box_by_region):
                (x1, y1, x2, y2), label = box_by_region[region]
                annotation = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
                numbers_by_region[*key, region] = len(numbers_by_region) + 1, image, numbers[label]
                writer.add_annotation(image, label, annotation, region=region, query_ids=query_ids_by_region[region])
    return numbers_by_region


def _write_refcoco(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    """Write instances.json of all splits and refs.json beside it."""
    samples = [sample for split_samples in samples_by_split.values() for sample in split_samples]
    numbers = _write_instances(folder / "instances.json", samples)
    refs = []
    for name, split_samples in samples_by_split.items():
        for sample in split_samples:
            line = sample.line
            region_numbers = [numbers[line["source"], line["image_id"], region] for region in line["regions"]]
            split = {"validate": "val"}.get(name, name)
            refs.append(
                ReferringExpression(
                    line["query_id"],
                    line["query"],
                    region_numbers[0][1],
                    [at[0] for at in region_numbers],
                    region_numbers[0][2],
                    split,
                    sample.file,
                )
            )
    write_refs(folder / "refs.json", refs)


def _write_hf(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], options: ExportOptions) -> None:
    """Write data/{split}.parquet with the pictures inside, and the head of the card."""
    columns = {name: kind for name, kind in PARQUET.items() if name != "image" or "pixels" not in options.withhold}
    files = {name: samples for name, samples in samples_by_split.items() if samples}
    for name, samples in files.items():
        path = folder / f"data/{name}-00000.parquet"
        path.parent.mkdir(exist_ok=True)
        rows = [_row(folder, sample, columns) for sample in samples]
        pl.DataFrame(rows, schema=columns).write_parquet(path, compression="zstd", statistics=False)
    for path in sorted(folder.glob("images/*/*.png")):
        path.unlink()
    for path in [*folder.glob("images/*"), folder / "images"]:
        if path.is_dir():
            path.rmdir()
    splits = [{"split": {"validate": "validation"}.get(name, name), "path": f"data/{name}-*.parquet"} for name in files]
    features = [{"name": name} | _feature(name, kind) for name, kind in columns.items()]
    head = {"configs": [{"config_name": "default", "data_files": splits}], "dataset_info": {"features": features}}
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n", encoding="utf-8")


def _row(folder: Path, sample: ExportedLine, columns: Mapping) -> dict:
    row = {name: sample.line.get(name) for name in columns} | {"boxes": sample.boxes, "grid": sample.line["boxes"]}
    if "image" in columns:
        row["image"] = {"bytes": (folder / sample.file).read_bytes(), "path": f"{sample.name}.png"}
    return row


def _feature(name: str, kind: pl.DataType) -> dict:
    if name == "image":
        return {"dtype": "image"}
    if kind == pl.String:
        return {"dtype": "string"}
    return {"list": {"list": "float64" if name == "boxes" else "int64"}}


def _readme(
    samples_by_split: Mapping[str, list[ExportedLine]], excluded_by_reason: Mapping[str, int], options: ExportOptions
) -> str:
    """Return the README of the folder: counts, licences, coordinates, and what is excluded."""
    counts = ", ".join(f"{name} {len(samples)}" for name, samples in samples_by_split.items())
    all_lines = [sample.line for split_samples in samples_by_split.values() for sample in split_samples]
    licences = Counter((line["source"], line["licence"] or "none stated") for line in all_lines)
    lines = [
        "# Referring queries of MedGround", "", f"Queries: {counts}. Format: {options.format}.",
        f"Coordinates in texts: {options.coordinates}. Boxes in fields of their own are pixels of the pictures.", "",
        "| source | licence of its pictures and masks | queries |", "|---|---|---|",
        *(f"| {source} | {licence} | {count} |" for (source, licence), count in sorted(licences.items())),
    ]  # fmt: skip
    lines += [f"\nLeft out: {count} {reason}." for reason, count in excluded_by_reason.items() if count]
    lines += ["\nThe pictures are withheld."] if "pixels" in options.withhold else []
    return "\n".join(lines) + "\n"
