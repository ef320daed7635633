"""Export the dataset in the formats YOLO, COCO and Hugging Face, and as a cohort that the ILS pipeline can read."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np
import polars as pl
import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cxr.base.atomic import atomic_folder
from cxr.base.columns import read_columns, schema
from cxr.base.hdf5 import Shards
from cxr.base.jobs import progress
from cxr.base.secrets import keyed_digest, read_secret
from cxr.base.tables import read_table, read_tables, write_table
from cxr.geometry.affine import boxes_to_original, to_original
from cxr.geometry.rle import encode_rle
from cxr.imaging.frames.decoding import check_frame_shape, read_grey
from cxr.instructions.coco import CocoWriter, make_categories
from cxr.semisyn.dataset.job_tables import CORNERS, SYNTHETIC
from cxr.semisyn.shared import images_per_finding, yolo_line

FRAME, ORIGINAL = "frame", "original"
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ExportImage:
    """One edited image. facts: its row of the table of images; grey: pixels, uint8 (rows, columns); lesion: mask of the
    finding, bool (rows, columns); boxes: [(box in pixels of ``grey``, row of the table of boxes)]."""

    facts: dict
    grey: np.ndarray
    lesion: np.ndarray
    boxes: list[tuple[Box, dict]]

    def png(self) -> bytes:
        """Return the image as PNG; a text chunk says that its finding is synthetic."""
        return encode_png(self.grey, f"{SYNTHETIC}: {self.facts['finding']}, job {self.facts['job_id']}")


def encode_png(grey: np.ndarray, text: str) -> bytes:
    """Return a grey image uint8 (rows, columns) as PNG, with ``text`` in the text chunk Description."""
    info, file = PngInfo(), io.BytesIO()
    info.add_text("Description", text)
    Image.fromarray(grey).save(file, "png", pnginfo=info, compress_level=6)
    return file.getvalue()


SUPERCATEGORY = "chest X-ray finding"
IDS = ("subject_id", "study_id", "image_id")
SUBSETS = ("train", "val", "test")
FORMAT_NOTES = {
    "yolo": "Give Ultralytics the absolute path of `data.yaml`: some versions look for a relative path elsewhere. If "
    "there are no validation images, `val` names the images of `train`, because Ultralytics does not train without "
    "`val`. Validation scores on training images tell nothing.\n\n"
}
"""{export format: note for users, which enters README.md}."""


@dataclass(frozen=True)
class ExportOptions:
    """Settings of an export. labels: {finding: class name}; kind: ``conditioning`` (requested) or ``visible`` boxes;
    target: dataset whose box shape is imitated, or ``source`` to keep it; pixels: ``frame`` or ``original``; withhold:
    items to leave out (``pixels``, ``ids``); salt: file of a secret key that encodes the ids, or "" for plain ids;
    size: number of images, or fifth, half or all; frames: settings for decoding the original images."""

    findings: list[str]
    labels: dict[str, str]
    kind: str
    target: str
    pixels: str
    withhold: list[str]
    salt: str
    size: int | str
    format: str
    frames: dict = field(default_factory=dict)


class ImageSource:
    """Iterable of the first images of each finding, as many as ``options.size`` asks for, with the boxes to export."""

    def __init__(
        self, images: pl.DataFrame, boxes: pl.DataFrame, edited: Sequence[str], frames: Sequence[str],
        cohort: Sequence[str], options: ExportOptions,
    ):  # fmt: skip
        self.max_per_finding = images_per_finding(options.size, images["requested"].max() or 0, len(options.findings))
        self.images = images.filter(pl.col("rank") < self.max_per_finding)
        self.boxes = boxes.filter((pl.col("kind") == options.kind) & (pl.col("target") == options.target))
        self.edited, self.frames, self.cohort, self.options = edited, frames, cohort, options

    def __iter__(self) -> Iterator[ExportImage]:
        """Yield the images in order of job_id."""
        boxes = {job: part.to_dicts() for (job,), part in self.boxes.partition_by("job_id", as_dict=True).items()}
        is_original = self.options.pixels == ORIGINAL
        paths = dict(read_tables(self.cohort).select("image_id", "path").iter_rows()) if is_original else {}
        with Shards(self.edited) as edited, Shards(self.frames if is_original else ()) as frames:
            for facts in self.images.sort("job_id").iter_rows(named=True):
                job, image, shape = facts["job_id"], facts["image_id"], (facts["rows"], facts["columns"])
                grey, lesion, rows = edited.get("image", job), edited.get("lesion", job), boxes.get(job, [])
                affine = np.reshape(facts["to_original"], (2, 3))
                corners = np.array([[row[name] for name in CORNERS] for row in rows], np.float64).reshape(-1, 4)
                if is_original:
                    original = check_frame_shape(read_grey(paths[image], self.options.frames), image, shape)
                    change = grey.astype(np.float32) - frames.get("image", image).astype(np.float32)
                    large_change = to_original(change, affine, original.shape, nearest=False)
                    grey = np.clip(np.rint(original + large_change), 0, 255).astype(np.uint8)
                    lesion = to_original(lesion.astype(np.uint8), affine, shape) > 0
                    corners = boxes_to_original(corners, affine)
                yield ExportImage(facts, grey, lesion, [*zip(map(tuple, corners.tolist()), rows, strict=True)])


def run(
    *, images: str, boxes: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str], sheet: str,
    folder: str | Path, options: ExportOptions,
) -> None:  # fmt: skip
    """Write one size of the dataset in one format to ``folder``, atomically. README.md includes the file ``sheet``."""
    source = ImageSource(read_table(images), read_table(boxes), edited, frames, cohort, options)
    write = {"yolo": write_yolo, "coco": write_coco, "hf": write_hf}[options.format]
    datasheet_text = Path(sheet).read_text(encoding="utf-8")
    key = read_secret("release.salt", options.salt) if options.salt else b""
    with atomic_folder(folder) as staging_dir:
        write(staging_dir, source, key, options)
        readme = staging_dir / "README.md"
        card = readme.read_text(encoding="utf-8") if readme.is_file() else ""
        withheld = f" Left out: {', '.join(options.withhold)}." if options.withhold else ""
        head = (
            f"# SemiSynCXR, {len(source.images):,} images\n\nUp to {source.max_per_finding:,} images of each finding. "
            f"Boxes: {options.kind}. Box shape: {options.target}. Pixels: {options.pixels}.{withheld}\n\n"
        )
        notes = FORMAT_NOTES.get(options.format, "")
        readme.write_text(card + head + notes + datasheet_text, encoding="utf-8")


def export_ids(key: bytes, facts: Mapping) -> dict[str, str]:
    """Return the ids of an image's row, {subject_id, study_id, image_id}. If the secret ``key`` is not empty, digests
    with this key replace the ids."""
    return {name: keyed_digest(key, name, facts[name]) if key else facts[name] for name in IDS}


def write_yolo(folder: Path, source: ImageSource, key: bytes, options: ExportOptions) -> None:
    """Write ``images/{subset}/*.png``, ``labels/{subset}/*.txt`` (see :func:`yolo_line`) and ``data.yaml``. Without
    validation images, ``val`` in data.yaml names the training images, because Ultralytics rejects an empty folder."""
    for kind in ("images", "labels"):
        (folder / kind / "train").mkdir(parents=True)
    for picture in _exported(folder, source, options):
        facts = picture.facts
        label = folder / "labels" / facts["subset"] / f"{facts['job_id']}.txt"
        label.parent.mkdir(exist_ok=True)
        number = options.findings.index(facts["finding"])
        lines = (yolo_line(box, number, picture.grey.shape) for box, _ in picture.boxes)
        label.write_text("".join(lines), encoding="utf-8")
    folders = {subset: f"images/{subset}" for subset in SUBSETS if subset in {"train", *source.images["subset"]}}
    description = {"train": folders["train"], "val": folders.get("val", folders["train"])} | folders
    description |= {"names": dict(enumerate(options.labels[name] for name in options.findings))}
    text = yaml.safe_dump(description, sort_keys=False)
    (folder / "data.yaml").write_text(f"# {SYNTHETIC}\n{text}", encoding="utf-8")


def write_coco(folder: Path, source: ImageSource, key: bytes, options: ExportOptions) -> None:
    """Write ``instances_{subset}.json`` (COCO) and ``images/{subset}/*.png``."""
    kinds, description = coco_categories(options), {"description": SYNTHETIC}
    with ExitStack() as stack:
        writers = {
            subset: stack.enter_context(CocoWriter(folder / f"instances_{subset}.json", description, kinds))
            for subset in SUBSETS
            if subset in set(source.images["subset"])
        }
        for picture in _exported(folder, source, options):
            add_coco_image(writers[picture.facts["subset"]], picture, key, options)


def coco_categories(options: ExportOptions) -> list[dict]:
    """Return the COCO categories. ``name``: class name for users; ``finding``: name of the finding in this project."""
    kinds = make_categories([options.labels[name] for name in options.findings], SUPERCATEGORY)
    return [kind | {"finding": name} for kind, name in zip(kinds, options.findings, strict=True)]


def add_coco_image(writer: CocoWriter, picture: ExportImage, key: bytes, options: ExportOptions) -> None:
    """Add an image with one annotation per box. :func:`split_lesion` divides the lesion mask among the annotations."""
    facts = picture.facts
    attributes = {name: facts[name] for name in ("job_id", "config", "engine", "prompt")}
    attributes |= {"kind": options.kind, "target": options.target, "says": SYNTHETIC, "split": facts["split"]}
    attributes |= {"source": export_ids(key, facts)}
    size = dict(zip(("height", "width"), picture.grey.shape, strict=True))
    file_name = f"{facts['job_id']}.png"
    number = writer.image(file_name=file_name, **size, split=facts["subset"], semisyn=attributes)
    parts = split_lesion(picture.lesion, [box for box, _ in picture.boxes])
    for ((x1, y1, x2, y2), row), mask in zip(picture.boxes, parts, strict=True):
        region = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
        if mask.any():
            region |= {"segmentation": encode_rle(mask), "area": int(mask.sum())}
        side, label = {name: row[name] for name in ("side", "zone", "says")}, options.labels[facts["finding"]]
        writer.add_annotation(number, label, region, label_text=facts["prompt"], semisyn=side)


def split_lesion(lesion: np.ndarray, boxes: Sequence[Box]) -> list[np.ndarray]:
    """Return one mask per box, bool (rows, columns). A lesion pixel goes to the box whose centre is nearest in x."""
    if len(boxes) < 2:
        return [lesion] * len(boxes)
    centres = np.array([(x1 + x2) / 2 for x1, _, x2, _ in boxes])
    nearest = np.abs(np.arange(lesion.shape[1])[:, None] + 0.5 - centres).argmin(axis=1)
    return [lesion & (nearest == place)[None] for place in range(len(boxes))]


PARQUET_SCHEMA = {
    "job_id": pl.String,
    "image": pl.Struct({"bytes": pl.Binary, "path": pl.String}),
    "objects": pl.Struct({"bbox": pl.List(pl.List(pl.Float64)), "category": pl.List(pl.Int64)}),
    **dict.fromkeys(("finding", "prompt", "config", "engine", "source", "study", "patient", "says"), pl.String),
}
"""Columns of the Parquet files."""
ROWS_PER_FILE = 1000
"""Maximum number of rows of a Parquet file. All rows of a file are in memory at once."""


def write_hf(folder: Path, source: ImageSource, key: bytes, options: ExportOptions) -> None:
    """Write ``data/{subset}-*.parquet`` with images and boxes (x1, y1, x2, y2, px), and README.md to describe them."""
    withheld = {"image"} if "pixels" in options.withhold else set()
    columns = {name: kind for name, kind in PARQUET_SCHEMA.items() if name not in withheld}
    subsets = source.images.sort("job_id")["subset"].unique(maintain_order=True).to_list()
    for subset in subsets:
        part = copy(source)
        part.images = source.images.filter(pl.col("subset") == subset)
        rows = (hf_row(picture, key, options) for picture in progress(part, len(part.images), "hf"))
        for number in range(ceil(len(part.images) / ROWS_PER_FILE)):
            path = folder / "data" / f"{subset}-{number:05d}.parquet"
            path.parent.mkdir(exist_ok=True)
            table = pl.DataFrame([*islice(rows, ROWS_PER_FILE)], schema=columns)
            table.write_parquet(path, compression="zstd", statistics=False)
    names = {str(number): options.labels[name] for number, name in enumerate(options.findings)}
    box = {"name": "bbox", "list": {"list": "float64", "length": 4}}
    category = {"name": "category", "list": {"class_label": {"names": names}}}
    special = {"image": {"dtype": "image"}, "objects": {"struct": [box, category]}}
    features = [{"name": name} | special.get(name, {"dtype": "string"}) for name in columns]
    head = {"configs": [{"config_name": "default", "data_files": [
        {"split": {"val": "validation"}.get(subset, subset), "path": f"data/{subset}-*.parquet"} for subset in subsets
    ]}], "dataset_info": {"features": features}}  # fmt: skip
    text = yaml.safe_dump(head, sort_keys=False)
    (folder / "README.md").write_text(f"---\n{text}---\n\n", encoding="utf-8")


def hf_row(picture: ExportImage, key: bytes, options: ExportOptions) -> dict:
    """Return an image's row of the Parquet file, in the columns of :data:`PARQUET_SCHEMA`."""
    facts, ids = picture.facts, export_ids(key, picture.facts)
    row = {name: facts[name] for name in ("job_id", "finding", "prompt", "config", "engine", "says")}
    row |= {"source": ids["image_id"], "study": ids["study_id"], "patient": ids["subject_id"]}
    if "pixels" not in options.withhold:
        row["image"] = {"bytes": picture.png(), "path": None}
    categories = [options.findings.index(facts["finding"])] * len(picture.boxes)
    return row | {"objects": {"bbox": [list(box) for box, _ in picture.boxes], "category": categories}}


def _exported(folder: Path, source: ImageSource, options: ExportOptions) -> Iterator[ExportImage]:
    """Yield the images and write each as ``images/{subset}/{job_id}.png``, unless pixels are withheld."""
    for picture in progress(source, len(source.images), options.format):
        if "pixels" not in options.withhold:
            path = folder / "images" / picture.facts["subset"] / f"{picture.facts['job_id']}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture.png())
        yield picture


CONTROL_REPORT = "The lungs are clear. No acute cardiopulmonary abnormality."
"""Report text for every healthy source image."""
RESOURCE_FILES = ("columns/semisyn_dataset.toml",)
MANIFEST = read_columns("semisyn_dataset", "manifest")


def run_cohort(
    *, images: str, boxes: str, healthy: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str],
    folder: str | Path, options: ExportOptions,
) -> None:  # fmt: skip
    """Write a cohort of edited images and their healthy sources, which the ILS pipeline can read: ``manifest.csv``,
    ``images/*.png`` (frames) and ``truth.json`` (COCO, with annotations of the edited images only)."""
    source = ImageSource(read_table(images), read_table(boxes), edited, [], [], options)
    pool = read_table(healthy).filter(pl.col("image_id").is_in(source.images["image_id"].implode())).sort("image_id")
    views = dict(pool.select("image_id", "view").iter_rows())
    with (
        atomic_folder(folder) as staging_dir,
        CocoWriter(staging_dir / "truth.json", {"description": SYNTHETIC}, coco_categories(options)) as truth,
    ):
        (staging_dir / "images").mkdir()
        rows = [
            _manifest_row(facts | {"view": views[facts["image_id"]]}, facts["job_id"], facts["prompt"])
            | {"finding": facts["finding"], "says": SYNTHETIC}
            for facts in source.images.iter_rows(named=True)
        ]
        for picture in progress(source, len(source.images), "cohort"):
            add_coco_image(truth, picture, b"", options)
            (staging_dir / "images" / f"{picture.facts['job_id']}.png").write_bytes(picture.png())
        with Shards(frames) as shards:
            for facts in pool.iter_rows(named=True):
                grey = shards.get("image", facts["image_id"])
                name = f"{facts['image_id']}.png"
                (staging_dir / "images" / name).write_bytes(encode_png(grey, "healthy source"))
                truth.image(file_name=name, height=grey.shape[0], width=grey.shape[1], split=facts["split"])
                row = _manifest_row(facts, facts["image_id"], CONTROL_REPORT)
                rows.append(row | {"finding": "", "says": "healthy source"})
        table = pl.DataFrame(rows, schema=schema(MANIFEST)).sort("image_id")
        write_table(staging_dir / "manifest.csv", table, MANIFEST)


def _manifest_row(facts: dict, name: str, report: str) -> dict:
    """Return a row of :data:`MANIFEST`. The report gets a capital letter at its start and a full stop at its end."""
    text = report.strip()
    text = text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
    row = {key: facts[key] for key in ("subject_id", "view", "split")} | {"image_id": name, "source": facts["image_id"]}
    return row | {"study_id": f"study-{name}", "image_path": f"images/{name}.png", "findings": text}
