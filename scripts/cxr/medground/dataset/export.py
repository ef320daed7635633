"""Export of the dataset in formats of other tools, such as COCO. Each format has a folder with the images as PNG."""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import polars as pl
import yaml

from cxr.base.atomic import atomic_folder
from cxr.base.tables import read_lines, write_lines
from cxr.geometry.boxes import CORNERS
from cxr.instructions.coco import CocoWriter, make_categories, write_refs
from cxr.instructions.conversations import Conversation, to_messages, to_sharegpt, to_swift, write_entries
from cxr.instructions.record import Turn
from cxr.medground.logic.facts import keep_audited, read_pictures
from cxr.medground.stage_settings import DatasetSettings
from cxr.plotting.encoding import encode_image
from cxr.vlm.conventions import InputSize, find_convention, localization_question

MERGE, MIN_PIXELS = 2, 3136
"""Qwen's image processors join MERGE × MERGE patches to a token. A resized image has at least MIN_PIXELS pixels."""
COPIED_FIELDS = ("source", "split", "domain", "modality", "licence", "kind", "trivial")
"""Fields of a query's line that are copied into its conversation."""
PARQUET = {
    "query_id": pl.String,
    "image": pl.Struct({"bytes": pl.Binary, "path": pl.String}),
    "query": pl.String,
    "boxes": pl.List(pl.List(pl.Float64)),
    "grid": pl.List(pl.List(pl.Int64)),
    **dict.fromkeys(("source", "domain", "modality", "licence", "kind", "image_id"), pl.String),
}
"""{column: type} of the format ``hf``. ``boxes`` are in pixels of the exported image, ``grid`` in 1/1000 of a side."""


class ExportedLine(NamedTuple):
    """The line of a query, its image's width and height (px), the boxes of its answer in pixels, and their classes."""

    line: Mapping
    width: int
    height: int
    boxes: list[list[float]]
    labels: list[str]

    @property
    def file(self) -> str:
        return f"images/{self.line['source']}/{self.line['image_id']}.png"


def forbids_derivatives(licence: str) -> bool:
    """Return whether a licence forbids the distribution of derived images, as CC BY-NC-ND does."""
    return "ND" in licence.upper().replace("-", " ").split()


def resized_sides(
    width: int, height: int, patch: int, max_pixels: int, merge: int = MERGE, min_pixels: int = MIN_PIXELS
) -> InputSize:
    """Return the (width, height) in pixels to which Qwen's processors resize an image. Each side is rounded to a
    multiple of ``patch * merge``. An area outside ``min_pixels`` to ``max_pixels`` is scaled to the nearer limit."""
    unit = patch * merge
    sides = np.array([width, height], np.float64)
    resized = np.maximum(unit, np.round(sides / unit) * unit)
    if resized.prod() > max_pixels:
        resized = np.maximum(unit, np.floor(sides * np.sqrt(max_pixels / sides.prod()) / unit) * unit)
    elif resized.prod() < min_pixels:
        resized = np.ceil(sides * np.sqrt(min_pixels / sides.prod()) / unit) * unit
    return InputSize(int(resized[0]), int(resized[1]))


def run(
    *, lines: list[str], regions: list[str], sources: list[str], folder: str, format: str, options: DatasetSettings,
    source_names: list[str], audit: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the queries of ``lines``, one file per split, in one ``format`` to ``folder``, which appears when complete.
    ``audit``: [table of experts' votes]. If ``options.audited``, the test split has only queries that they accepted."""
    lines_by_split = {Path(path).stem: list(read_lines(path)) for path in lines}
    has_pixels = "pixels" not in options.withhold
    num_unaudited = num_nd = 0
    if options.audited:
        num_unaudited = len(lines_by_split["test"])
        lines_by_split["test"] = keep_audited(lines_by_split["test"], audit[0])
        num_unaudited -= len(lines_by_split["test"])
    if has_pixels and not options.allow_nd:
        for name, split_lines in lines_by_split.items():
            lines_by_split[name] = [line for line in split_lines if not forbids_derivatives(line["licence"])]
            num_nd += len(split_lines) - len(lines_by_split[name])
    notes = [f"\nLeft out: {num_unaudited} test lines that are not audited or were not accepted."] * bool(num_unaudited)
    notes += [f"\nLeft out: {num_nd} lines whose licence forbids derivatives."] * bool(num_nd)
    notes += [] if has_pixels else ["\nThe pictures are withheld."]
    with atomic_folder(folder) as staging_dir:
        samples_by_split = _read_samples(lines_by_split, regions, sources, source_names, staging_dir, has_pixels)
        if format == "refcoco":
            _write_refcoco(staging_dir, samples_by_split)
        elif format == "hf":
            _write_hf(staging_dir, samples_by_split, has_pixels)
        for name, samples in samples_by_split.items():
            if format == "coco":
                _write_instances(staging_dir / f"instances_{name}.json", samples)
            elif format in CONVERSATIONS:
                to_entry, write, ending = CONVERSATIONS[format]
                write(staging_dir / f"{name}{ending}", (to_entry(to_conversation(item, options)) for item in samples))
        with open(staging_dir / "README.md", "a", encoding="utf-8") as file:
            file.write(_readme(samples_by_split, notes, format, options.coordinates))


CONVERSATIONS = {
    "messages": (to_messages, write_lines, ".jsonl"),
    "swift": (to_swift, write_lines, ".jsonl"),
    "sharegpt": (to_sharegpt, write_entries, ".json"),
}
"""{format of conversations: (function that makes an entry, function that writes a split's entries, file ending)}."""


def _read_samples(
    lines_by_split: Mapping[str, list[dict]], regions: Sequence[str], sources: Sequence[str],
    source_names: Sequence[str], folder: Path, has_pixels: bool,
) -> dict[str, list[ExportedLine]]:  # fmt: skip
    """Return {split: queries with their boxes in pixels}. If ``has_pixels``, write the images as PNG to ``folder``."""
    keys = {(line["source"], line["image_id"]) for split_lines in lines_by_split.values() for line in split_lines}
    image_by_key: dict[tuple[str, str], tuple[int, int, dict[int, dict]]] = {}
    for key, picture, rows in read_pictures(source_names, regions, sources, keys):
        image_by_key[key] = picture.shape[1], picture.shape[0], {row["region"]: row for row in rows}
        if has_pixels:
            path = folder / f"images/{key[0]}/{key[1]}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_image(".png", picture[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 3]))

    def sample(line: Mapping) -> ExportedLine:
        width, height, row_by_region = image_by_key[line["source"], line["image_id"]]
        rows = [row_by_region[region] for region in line["regions"]]
        boxes = [[float(row[side]) for side in CORNERS] for row in rows]
        return ExportedLine(line, width, height, boxes, [row["label"] for row in rows])

    return {name: list(map(sample, split_lines)) for name, split_lines in lines_by_split.items()}


def to_conversation(sample: ExportedLine, options: DatasetSettings) -> Conversation:
    """Return a query as a question and an answer. ``options.coordinates`` is the unit of boxes in the answer."""
    line = sample.line
    convention = find_convention("grid1000" if options.coordinates == "grid1000" else "pixels_resized")
    if options.coordinates == "pixels_original":
        boxes = [{"bbox_2d": [int(np.floor(value + 0.5)) for value in box]} for box in line["boxes_px"]]
        answer = json.dumps(boxes[0] if len(boxes) == 1 else boxes)
    else:
        size = resized_sides(sample.width, sample.height, options.resized.patch, options.resized.max_pixels)
        answer = convention.answer((np.array(line["boxes"], np.float64) / 1000).tolist(), size)
    question = localization_question(line["query"], convention)
    picture = "" if "pixels" in options.withhold else sample.file
    extra_fields = {name: line[name] for name in COPIED_FIELDS}
    return Conversation(line["query_id"], picture, [Turn(question, answer)], line["query"], sample.boxes, extra_fields)


def _write_instances(path: Path, samples: Sequence[ExportedLine]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Write boxes as a COCO file. Return {(image file, region): (annotation id, image id, category id)}."""
    kinds = make_categories(sorted({label for sample in samples for label in sample.labels}), "region")
    categories = {kind["name"]: kind["id"] for kind in kinds}
    samples_by_image: dict[str, list[ExportedLine]] = defaultdict(list)
    for sample in samples:
        samples_by_image[sample.file].append(sample)
    numbers: dict[tuple[str, int], tuple[int, int, int]] = {}
    with CocoWriter(path, {"description": "MedGround: boxes that verified queries mean"}, kinds) as writer:
        for file, image_samples in samples_by_image.items():
            first = image_samples[0]
            image_fields = {name: first.line[name] for name in ("source", "domain", "licence")}
            image = writer.image(file_name=file, width=first.width, height=first.height, **image_fields)
            regions: dict[int, tuple[list[float], str, list[str]]] = {}
            for sample in image_samples:
                for region, box, label in zip(sample.line["regions"], sample.boxes, sample.labels, strict=True):
                    regions.setdefault(region, (box, label, []))[2].append(sample.line["query_id"])
            for region, ((x1, y1, x2, y2), label, query_ids) in sorted(regions.items()):
                annotation = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
                numbers[file, region] = len(numbers) + 1, image, categories[label]
                writer.add_annotation(image, label, annotation, region=region, query_ids=query_ids)
    return numbers


def _write_refcoco(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]]) -> None:
    refs, numbers = [], _write_instances(folder / "instances.json", list(chain(*samples_by_split.values())))
    for name, split_samples in samples_by_split.items():
        for sample in split_samples:
            line, split = sample.line, {"validate": "val"}.get(name, name)
            ids = [numbers[sample.file, region][0] for region in line["regions"]]
            _, image, category = numbers[sample.file, line["regions"][0]]
            place = {"image_id": image, "category_id": category, "split": split, "file_name": sample.file}
            refs.append((line["query_id"], line["query"], ids, place))
    write_refs(folder / "refs.json", refs)


def _write_hf(folder: Path, samples_by_split: Mapping[str, list[ExportedLine]], has_pixels: bool) -> None:
    """Write data/{split}-00000.parquet, with images if ``has_pixels``, and the YAML header of README.md."""
    columns = {name: kind for name, kind in PARQUET.items() if name != "image" or has_pixels}
    files = {name: samples for name, samples in samples_by_split.items() if samples}
    for name, samples in files.items():
        path = folder / f"data/{name}-00000.parquet"
        path.parent.mkdir(exist_ok=True)
        rows = []
        for sample in samples:
            picture = {"bytes": (folder / sample.file).read_bytes()} if "image" in columns else {}
            row = sample.line | {"boxes": sample.boxes, "grid": sample.line["boxes"]}
            row["image"] = picture | {"path": f"{sample.line['image_id']}.png"}
            rows.append({name: row.get(name) for name in columns})
        pl.DataFrame(rows, schema=columns).write_parquet(path, compression="zstd", statistics=False)
    shutil.rmtree(folder / "images", ignore_errors=True)
    splits = [{"split": {"validate": "validation"}.get(name, name), "path": f"data/{name}-*.parquet"} for name in files]
    kinds = {"image": {"dtype": "image"}, "boxes": {"list": {"list": "float64"}}, "grid": {"list": {"list": "int64"}}}
    features = [{"name": name} | kinds.get(name, {"dtype": "string"}) for name in columns]
    head = {"configs": [{"config_name": "default", "data_files": splits}], "dataset_info": {"features": features}}
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n", encoding="utf-8")


def _readme(samples_by_split: Mapping[str, list[ExportedLine]], notes: list[str], format: str, coordinates: str) -> str:
    counts = ", ".join(f"{name} {len(samples)}" for name, samples in samples_by_split.items())
    all_lines = (sample.line for sample in chain(*samples_by_split.values()))
    licences = Counter((line["source"], line["licence"] or "none stated") for line in all_lines)
    lines = [
        "# Referring queries of MedGround", "", f"Queries: {counts}. Format: {format}.",
        f"Coordinates in texts: {coordinates}. Boxes in fields of their own are pixels of the pictures.", "",
        "| source | licence of its pictures and masks | queries |", "|---|---|---|",
        *(f"| {source} | {licence} | {count} |" for (source, licence), count in sorted(licences.items())), *notes,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
