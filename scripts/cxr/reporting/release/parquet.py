"""Write the Parquet files of a split, named and structured for Hugging Face ``datasets``.

Columns have plain types. An image is a struct of ``bytes`` (PNG) and ``path`` (null); ``datasets`` shows it as an image
because the card declares it (``features``).
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
    "pair_id": Column(pl.String, "Pair."),
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
    "location": Column(TEXT_LIST, "Named locations."),
    "grounded_location": Column(TEXT_LIST, "Locations that the mask confirms; empty for a negative."),
    "reported_location": Column(TEXT_LIST, "Reported locations; empty for a negative."),
    "seg": Column(pl.Boolean, "Whether there is a mask."),
    "mask_id": Column(pl.String, "Its mask; null for a negative."),
    "basis": Column(pl.String, "What a negative rests on: explicit, silent or elsewhere (a finding at another place)."),
    "quote": Column(pl.String, "The sentence that denies explicitly; no such column where `report_text` is withheld."),
    "quote_section": Column(pl.String, "Its section."),
    "box_confidence": Column(pl.Float64, "The best box in the location that a negative names."),
    "anomalous_fraction": Column(pl.Float64, "Fraction of anomalous pixels there; null without an anomaly map."),
    "reader": Column(pl.String, "Digest of the code and words that read the report."),
    "mask": Column(IMAGE_TYPE, "PNG with one bit per pixel, 512 × 512; `path` is null."),
}
IMAGES = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Study."),
    "subject_id": Column(pl.String, "Patient."),
    "rows": Column(pl.Int64, "Height of the original image.", "pixels"),
    "columns": Column(pl.Int64, "Its width.", "pixels"),
    "to_original": Column(pl.List(pl.Float64), "Affine from frame to original pixels, row by row, six numbers."),
    "image": Column(IMAGE_TYPE, "PNG of the frame; no such column where `pixels` are withheld."),
}
CONFIGS = {"pairs": ("data", schema(PAIRS)), "images": ("images", schema(IMAGES))}
"""{config: (folder, {column: type})}."""
PAIRS_PER_FILE, IMAGES_PER_FILE = 20_000, 1_000
"""Rows of a Parquet file; they bound the memory of the job that writes it."""
SPLIT_NAMES = {"train": "train", "validate": "validation", "test": "test"}
"""{our split: its name in ``datasets``}."""
DTYPES = {pl.String: "string", pl.Int64: "int64", pl.Float64: "float64", pl.Boolean: "bool", IMAGE_TYPE: "image"}
"""{column type: its name in a dataset card}."""


def encode_png(image: np.ndarray) -> bytes:
    """Encode a mask, bool (H, W), or an image, uint8 (H, W), as PNG; a mask has one bit per pixel."""
    flags = [cv2.IMWRITE_PNG_BILEVEL, 1] if image.dtype == bool else []
    return encode_image(".png", image.astype(np.uint8) * (255 if flags else 1), flags)


def image_cell(data: bytes | None) -> dict | None:
    """Return the cell for the bytes of a PNG; None without an image."""
    return None if data is None else {"bytes": data, "path": None}


def card_features(columns: dict) -> list[dict]:
    """Return the columns as a dataset card declares them (``dataset_info.features``)."""
    return [
        {"name": name, "list": DTYPES[kind.inner]}
        if isinstance(kind, pl.List)
        else {"name": name, "dtype": DTYPES[kind]}
        for name, kind in columns.items()
    ]


class PartWriter:
    """Writes the ``total`` rows of one split and config to files of ``size`` rows, which bounds memory use.

    A split without rows has no file, because ``datasets`` refuses empty files.
    """

    def __init__(self, folder: Path, split: str, columns: dict, total: int, size: int):
        self._stem, self._columns, self._size = folder / SPLIT_NAMES[split], columns, size
        self._files = -(-total // size)
        self._rows: list[dict] = []
        self._written = 0

    def add(self, row: dict) -> None:
        """Add a row; keys that are not columns are ignored."""
        self._rows.append({name: row[name] for name in self._columns})
        if len(self._rows) == self._size:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._rows:
            table = pl.DataFrame(self._rows, schema=self._columns)
            path = self._stem.with_name(f"{self._stem.name}-{self._written:05d}-of-{self._files:05d}.parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            table.write_parquet(path, compression="zstd", statistics=False)
            self._written, self._rows = self._written + 1, []
