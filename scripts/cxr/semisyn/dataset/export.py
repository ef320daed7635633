"""Export the dataset in the layouts of YOLO, COCO and Hugging Face, one folder for each box convention and size."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cxr.base.atomic import atomic_folder
from cxr.base.hdf5 import Shard, Shards
from cxr.base.jobs import progress
from cxr.base.secrets import keyed_digest, read_secret
from cxr.base.tables import read_table, read_tables
from cxr.geometry.affine import boxes_to_original, to_original
from cxr.geometry.rle import encode_rle
from cxr.imaging.frames.decoding import check_frame_shape, read_grey
from cxr.instructions.coco import CocoWriter, make_categories
from cxr.semisyn.dataset.datasheet import readme_head
from cxr.semisyn.dataset.job_tables import CORNERS, SYNTHETIC
from cxr.semisyn.shared import images_per_finding

FRAME, ORIGINAL = "frame", "original"
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ExportImage:
    """One edited image of an export. ``facts``: its row of the image table; ``grey`` uint8 (rows, columns).

    ``lesion`` bool (rows, columns); ``boxes``: [((x1, y1, x2, y2) in image pixels, row of the box table)].
    """

    facts: dict
    grey: np.ndarray
    lesion: np.ndarray
    boxes: list[tuple[Box, dict]]

    def png(self) -> bytes:
        """Return the image as PNG; a text chunk says that its finding is synthetic."""
        return encode_png(self.grey, f"{SYNTHETIC}: {self.facts['finding']}, job {self.facts['job_id']}")


def encode_png(grey: np.ndarray, text: str) -> bytes:
    """Return a grey image uint8 (rows, columns) as PNG with ``text`` as its description."""
    info, file = PngInfo(), io.BytesIO()
    info.add_text("Description", text)
    Image.fromarray(grey).save(file, "png", pnginfo=info, compress_level=6)
    return file.getvalue()


@dataclass(frozen=True)
class ImageSource:
    """Iterable of the images of an export.

    images, boxes: the selected rows of the dataset's tables; edited, frames, cohort: paths of shards; pixels: ``frame``
    or ``original``; decoding: settings for decoding the originals.
    """

    images: pl.DataFrame
    boxes: pl.DataFrame
    edited: Sequence[str]
    frames: Sequence[str]
    cohort: Sequence[str]
    pixels: str
    decoding: dict

    def __iter__(self) -> Iterator[ExportImage]:
        """Yield the images in order of job_id."""
        boxes = {job: part.to_dicts() for (job,), part in self.boxes.partition_by("job_id", as_dict=True).items()}
        paths = {}
        if self.pixels == ORIGINAL:
            paths = dict(read_tables(self.cohort).select("image_id", "path").iter_rows())
        with Shards(self.edited) as edited, Shards(self.frames if self.pixels == ORIGINAL else ()) as frames:
            for facts in self.images.sort("job_id").iter_rows(named=True):
                box_rows = boxes.get(facts["job_id"], [])
                source = frames.shard_of(facts["image_id"]) if self.pixels == ORIGINAL else None
                yield self._picture(facts, edited.shard_of(facts["job_id"]), source, paths, box_rows)

    def _picture(
        self, facts: dict, edited: Shard, sources: Shard | None, paths: Mapping[str, str], boxes: list[dict]
    ) -> ExportImage:
        grey, lesion = edited.get("image", facts["job_id"]), edited.get("lesion", facts["job_id"])
        affine = np.reshape(facts["to_original"], (2, 3))
        corners = np.array([[row[name] for name in CORNERS] for row in boxes], np.float64).reshape(-1, 4)
        if sources is not None:
            shape = (facts["rows"], facts["columns"])
            original = check_frame_shape(read_grey(paths[facts["image_id"]], self.decoding), facts["image_id"], shape)
            change = grey.astype(np.float32) - sources.get("image", facts["image_id"]).astype(np.float32)
            large_change = to_original(change, affine, original.shape, nearest=False)
            grey = np.clip(np.rint(original + large_change), 0, 255).astype(np.uint8)
            lesion = to_original(lesion.astype(np.uint8), affine, shape) > 0
            corners = boxes_to_original(corners, affine)
        return ExportImage(
            facts, grey, lesion, [(tuple(box), row) for box, row in zip(corners.tolist(), boxes, strict=True)]
        )


IDS = ("subject_id", "study_id", "image_id")


class ExportIds:
    """Ids of patients, studies and images in an export: the original ones, or keyed digests.

    ``salt``: file of the secret key of the digests; "" for the names themselves. The key is the release's, so that both
    give the same names.
    """

    def __init__(self, salt: str = ""):
        self._key = read_secret("release.salt", salt) if salt else b""

    def of_image(self, facts: Mapping) -> dict[str, str]:
        """Return {name: id} of the ids among ``facts``, as the export gives them."""
        present = {name: facts[name] for name in IDS if name in facts}
        return {name: keyed_digest(self._key, name, value) if self._key else value for name, value in present.items()}


SUPERCATEGORY = "chest X-ray finding"
SUBSETS = ("train", "val", "test")
DIGITS = 8
"""Decimal digits of YOLO's fractions; with six, a box could move by 5e-4 px of the frame."""


@dataclass(frozen=True)
class ExportOptions:
    """Settings of the exports.

    findings: in class order; labels: {finding: display name}; kind: boxes ``conditioning`` or ``visible``; target:
    box convention; pixels: ``frame`` or ``original``; withhold: ``pixels``, ``ids`` or both are not exported; salt:
    file with the key of the ids; frames: decoding of the originals; size: number of images of all findings together,
    or ``fifth``, ``half`` or ``all``; format: ``yolo``, ``coco`` or ``hf``.
    """

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

    @property
    def class_names(self) -> list[str]:
        """Display names of the classes, in class order."""
        return [self.labels[name] for name in self.findings]


def run(
    *, images: str, boxes: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str], sheet: str,
    folder: str | Path, options: ExportOptions,
) -> None:  # fmt: skip
    """Write one size in one format to ``folder``, atomically.

    ``images``, ``boxes``: the dataset's tables; ``edited``, ``frames``, ``cohort``: shards; ``sheet``: the datasheet,
    copied to the folder's README.md.
    """
    image_table = read_table(images)
    source = select_images(image_table, read_table(boxes), edited, frames, cohort, options)
    write = {"yolo": write_yolo, "coco": write_coco, "hf": write_hf}[options.format]
    datasheet_text = Path(sheet).read_text(encoding="utf-8")
    with atomic_folder(folder) as staging_dir:
        write(staging_dir, source, ExportIds(options.salt), options)
        readme = staging_dir / "README.md"
        card = readme.read_text(encoding="utf-8") if readme.is_file() else ""
        head = readme_head(options, len(source.images), max_per_finding(image_table, options))
        readme.write_text(card + head + datasheet_text, encoding="utf-8")


def select_images(
    images: pl.DataFrame, boxes: pl.DataFrame, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str],
    options: ExportOptions,
) -> ImageSource:  # fmt: skip
    """Return the images of the size: those of the lowest ranks, with the boxes of the chosen kind and convention."""
    selected_images = images.filter(pl.col("rank") < max_per_finding(images, options))
    selected_boxes = boxes.filter((pl.col("kind") == options.kind) & (pl.col("target") == options.target))
    files = ([paths] if isinstance(paths, str) else list(paths) for paths in (edited, frames, cohort))
    return ImageSource(selected_images, selected_boxes, *files, options.pixels, options.frames)


def max_per_finding(images: pl.DataFrame, options: ExportOptions) -> int:
    """Return the largest number of images of one finding in the size. ``images``: the dataset's table."""
    return images_per_finding(options.size, images["asked"].max() or 0, len(options.findings))


def write_yolo(folder: Path, source: ImageSource, names: ExportIds, options: ExportOptions) -> None:
    """Write ``images/{subset}/*.png``, ``labels/{subset}/*.txt`` (class cx cy w h, fractions) and ``data.yaml``.

    Without validation images ``val`` names those of train: Ultralytics needs the key and rejects an empty folder.
    """
    subsets = {"train"}
    for kind in ("images", "labels"):
        (folder / kind / "train").mkdir(parents=True)
    for picture in _exported(folder, source, options):
        facts = picture.facts
        subsets.add(facts["subset"])
        label = folder / "labels" / facts["subset"] / f"{facts['job_id']}.txt"
        label.parent.mkdir(exist_ok=True)
        number = options.findings.index(facts["finding"])
        lines = (yolo_line(box, number, picture.grey.shape) for box, _ in picture.boxes)
        label.write_text("".join(lines), encoding="utf-8")
    folders = {subset: f"images/{subset}" for subset in SUBSETS if subset in subsets}
    description = {"train": folders["train"], "val": folders.get("val", folders["train"])} | folders
    description |= {"names": dict(enumerate(options.class_names))}
    text = yaml.safe_dump(description, sort_keys=False)
    (folder / "data.yaml").write_text(f"# {SYNTHETIC}\n{text}", encoding="utf-8")


def yolo_line(box: Box, number: int, shape: tuple[int, int]) -> str:
    """Return a YOLO label line: class, centre, width and height as fractions of the image ``shape``, clipped to it."""
    x1, y1, x2, y2 = np.clip(np.array(box) / np.tile(shape[::-1], 2), 0, 1)
    cells = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
    return " ".join([str(number), *(f"{cell:.{DIGITS}f}" for cell in cells)]) + "\n"


def write_coco(folder: Path, source: ImageSource, names: ExportIds, options: ExportOptions) -> None:
    """Write ``instances_{subset}.json`` and ``images/{subset}/*.png``."""
    kinds = coco_categories(options)
    subsets = [subset for subset in SUBSETS if subset in set(source.images["subset"])]
    with ExitStack() as stack:
        writers = {
            subset: stack.enter_context(
                CocoWriter(folder / f"instances_{subset}.json", {"description": SYNTHETIC}, kinds)
            )
            for subset in subsets
        }
        for picture in _exported(folder, source, options):
            add_coco_image(writers[picture.facts["subset"]], picture, names, options)


def coco_categories(options: ExportOptions) -> list[dict]:
    """Return the COCO categories: ``name`` is the display name, ``finding`` the key that our COCO reader uses."""
    kinds = make_categories(options.class_names, SUPERCATEGORY)
    return [kind | {"finding": name} for kind, name in zip(kinds, options.findings, strict=True)]


def add_coco_image(writer: CocoWriter, picture: ExportImage, names: ExportIds, options: ExportOptions) -> None:
    """Add an image with one annotation per box, whose mask is the part of the lesion nearest to the box."""
    facts = picture.facts
    rows, columns = picture.grey.shape
    attributes = {name: facts[name] for name in ("job_id", "config", "engine", "prompt")}
    attributes |= {"kind": options.kind, "target": options.target, "says": SYNTHETIC, "split": facts["split"]}
    number = writer.image(
        file_name=f"{facts['job_id']}.png",
        height=rows,
        width=columns,
        split=facts["subset"],
        semisyn=attributes | {"source": names.of_image(facts)},
    )
    parts = split_lesion(picture.lesion, [box for box, _ in picture.boxes])
    for (box, row), mask in zip(picture.boxes, parts, strict=True):
        x1, y1, x2, y2 = box
        region = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
        if mask.any():
            region |= {"segmentation": encode_rle(mask), "area": int(mask.sum())}
        side = {"side": row["side"], "zone": row["zone"], "says": SYNTHETIC}
        writer.add_annotation(
            number, options.labels[facts["finding"]], region, label_text=facts["prompt"], semisyn=side
        )


def split_lesion(lesion: np.ndarray, boxes: Sequence[Box]) -> list[np.ndarray]:
    """Return one mask per box: the pixels of the lesion, bool (rows, columns), that are nearest to its centre in x."""
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
"""Rows in memory at once."""


def write_hf(folder: Path, source: ImageSource, names: ExportIds, options: ExportOptions) -> None:
    """Write ``data/{subset}-*.parquet`` with image and objects (bbox: x1, y1, x2, y2, px), and the card's YAML head."""
    columns = {
        name: kind for name, kind in PARQUET_SCHEMA.items() if not (name == "image" and "pixels" in options.withhold)
    }
    waiting: dict[str, list[dict]] = {}
    files: dict[str, int] = {}

    def flush(subset: str) -> None:
        if rows := waiting.pop(subset, []):
            path = folder / "data" / f"{subset}-{files.get(subset, 0):05d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pl.DataFrame(rows, schema=columns).write_parquet(path, compression="zstd", statistics=False)
            files[subset] = files.get(subset, 0) + 1

    for picture in progress(source, len(source.images), "hf"):
        row = hf_row(picture, names, options)
        waiting.setdefault(picture.facts["subset"], []).append({name: row[name] for name in columns})
        if len(waiting[picture.facts["subset"]]) == ROWS_PER_FILE:
            flush(picture.facts["subset"])
    for subset in list(waiting):
        flush(subset)
    head = {"configs": [{"config_name": "default", "data_files": [
        {"split": {"val": "validation"}.get(subset, subset), "path": f"data/{subset}-*.parquet"} for subset in files
    ]}], "dataset_info": {"features": card_features(columns, options.class_names)}}  # fmt: skip
    text = yaml.safe_dump(head, sort_keys=False)
    (folder / "README.md").write_text(f"---\n{text}---\n\n", encoding="utf-8")


def hf_row(picture: ExportImage, names: ExportIds, options: ExportOptions) -> dict:
    """Return a row of :data:`PARQUET_SCHEMA`."""
    facts, export_ids = picture.facts, names.of_image(picture.facts)
    number = options.findings.index(facts["finding"])
    return {
        **{name: facts[name] for name in ("job_id", "finding", "prompt", "config", "engine", "says")},
        "image": None if "pixels" in options.withhold else {"bytes": picture.png(), "path": None},
        "objects": {"bbox": [list(box) for box, _ in picture.boxes], "category": [number] * len(picture.boxes)},
        "source": export_ids["image_id"],
        "study": export_ids["study_id"],
        "patient": export_ids["subject_id"],
    }


def card_features(columns: dict, classes: Sequence[str]) -> list[dict]:
    """Return the features of a Hugging Face dataset card for the columns."""
    names = {str(number): name for number, name in enumerate(classes)}
    special = {
        "image": {"dtype": "image"},
        "objects": {
            "struct": [
                {"name": "bbox", "list": {"list": "float64", "length": 4}},
                {"name": "category", "list": {"class_label": {"names": names}}},
            ]
        },
    }
    return [{"name": name} | special.get(name, {"dtype": "string"}) for name in columns]


def _exported(folder: Path, source: ImageSource, options: ExportOptions) -> Iterator[ExportImage]:
    """Yield the images and write each as ``images/{subset}/{job_id}.png``, unless pixels are withheld."""
    for picture in progress(source, len(source.images), options.format):
        if "pixels" not in options.withhold:
            path = folder / "images" / picture.facts["subset"] / f"{picture.facts['job_id']}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture.png())
        yield picture
