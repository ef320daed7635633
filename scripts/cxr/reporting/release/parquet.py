"""Write the Parquet files of a split, named and structured for Hugging Face ``datasets``.

An image is a struct of ``bytes`` (PNG) and ``path`` (null). The tool ``datasets`` shows the struct as an image, because
the card of the package (README.md) declares its column as an image.
"""

from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.plotting.encoding import encode_image

IMAGE_TYPE = pl.Struct({"bytes": pl.Binary, "path": pl.String})
TEXT_LIST = pl.List(pl.String)
PAIRS = {
    "pair_id": Column(pl.String, "Id of the instruction-answer pair."),
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "section_name": Column(pl.String, "findings, impression or last_paragraph."),
    "section_content": Column(pl.String, "Text of the section; no such column where `report_text` is withheld."),
    "sentence_index": Column(pl.Int64, "Sentence of the (first) finding, from 1; null for a negative."),
    "type": Column(pl.String, "basic, global or lesion_inference."),
    "target": Column(pl.String, "Lesion type."),
    "certainty": Column(pl.String, "definitive or tentative; null for a negative and for cardiomegaly."),
    "instruction": Column(pl.String, "Text of the instruction."),
    "answer": Column(pl.String, "Expected answer."),
    "location": Column(TEXT_LIST, "Locations that the instruction names."),
    "grounded_location": Column(TEXT_LIST, "Locations that the mask confirms; empty for a negative."),
    "reported_location": Column(TEXT_LIST, "Reported locations; empty for a negative."),
    "seg": Column(pl.Boolean, "Whether the pair is positive and has a mask."),
    "mask_id": Column(pl.String, "Id of the mask; null for a negative."),
    "basis": Column(pl.String, "Why a negative: explicit (denied), silent (not mentioned), elsewhere (stated there)."),
    "quote": Column(pl.String, "Sentence that denies the lesion; no such column where `report_text` is withheld."),
    "quote_section": Column(pl.String, "Section of the quote."),
    "box_confidence": Column(pl.Float64, "Highest confidence of a box in the location that a negative names."),
    "anomalous_fraction": Column(pl.Float64, "Anomalous fraction of this location; null without an anomaly map."),
    "reader": Column(pl.String, "Digest of the code and vocabulary that read the report."),
    "mask": Column(IMAGE_TYPE, "PNG with one bit per pixel, 512 × 512; `path` is null."),
}
IMAGES = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Study."),
    "subject_id": Column(pl.String, "Patient."),
    "rows": Column(pl.Int64, "Height of the original image.", "pixels"),
    "columns": Column(pl.Int64, "Width of the original image.", "pixels"),
    "to_original": Column(pl.List(pl.Float64), "Affine (2, 3) from frame to original pixels, row by row."),
    "image": Column(IMAGE_TYPE, "PNG of the frame; no such column where `pixels` are withheld."),
}
CONFIGS = {"pairs": ("data", schema(PAIRS)), "images": ("images", schema(IMAGES))}
"""{config: (folder, {column: type})}. ``datasets`` calls each table of a dataset a config."""
PAIRS_PER_FILE, IMAGES_PER_FILE = 20_000, 1_000
"""Maximum number of rows of a Parquet file, which limits the memory of the job that writes it."""
SPLIT_NAMES = {"train": "train", "validate": "validation", "test": "test"}
"""{split of this project: split of ``datasets``}."""
DTYPES = {pl.String: "string", pl.Int64: "int64", pl.Float64: "float64", pl.Boolean: "bool", IMAGE_TYPE: "image"}
"""{column type: its name in a dataset card}."""


def encode_png(image: np.ndarray) -> bytes:
    """Return an image, uint8 (H, W), or a mask, bool (H, W), as PNG. A mask has one bit per pixel."""
    flags = [cv2.IMWRITE_PNG_BILEVEL, 1] if image.dtype == bool else []
    return encode_image(".png", image.astype(np.uint8) * (255 if flags else 1), flags)


def image_cell(data: bytes | None) -> dict | None:
    """Return a value of type :data:`IMAGE_TYPE` with ``data``, the bytes of a PNG, or None without an image."""
    return None if data is None else {"bytes": data, "path": None}


def card_features(columns: dict) -> list[dict]:
    """Return the columns {name: type} as a dataset card declares them (``dataset_info.features``)."""
    return [
        {"name": name, "list": DTYPES[kind.inner]}
        if isinstance(kind, pl.List)
        else {"name": name, "dtype": DTYPES[kind]}
        for name, kind in columns.items()
    ]


class PartWriter:
    """A writer of the ``total`` rows of one table of a split, to files of ``size`` rows each.
    A split without rows gets no file, because ``datasets`` refuses empty files."""

    def __init__(self, folder: Path, split: str, columns: dict, total: int, size: int):
        self._stem, self._columns, self._size = folder / SPLIT_NAMES[split], columns, size
        self._files = -(-total // size)
        self._rows: list[dict] = []
        self._written = 0

    def add(self, row: dict) -> None:
        """Add a row {column: value}. Keys that are not columns are ignored."""
        self._rows.append({name: row[name] for name in self._columns})
        if len(self._rows) == self._size:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not yet written to a file. Call this method after the last row."""
        if self._rows:
            table = pl.DataFrame(self._rows, schema=self._columns)
            path = self._stem.with_name(f"{self._stem.name}-{self._written:05d}-of-{self._files:05d}.parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            table.write_parquet(path, compression="zstd", statistics=False)
            self._written, self._rows = self._written + 1, []
