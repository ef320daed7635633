"""Read the images of a shard one by one, with their report and the results of the earlier stages."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.edited_images import is_unedited
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import HEART, LUNGS, VALID_LOCATIONS
from cxr.geometry.boxes import CORNERS, clip_boxes
from cxr.ils.masks import algorithm
from cxr.ils.masks.findings import Finding, find_related_lesions, read_positive_findings
from cxr.ils.masks.segmenter import LesionSegmenter
from cxr.ils.masks.settings import STRICT, Rules
from cxr.ils.masks.zones import Zones

SMALLEST_OVERLAP = 0.1
"""Minimum fraction of a box's area in a location for the box to count as a sign of a lesion there (our choice)."""
ANOMALOUS_LEVEL = 25
"""Minimum grey level (0 to 255) of an anomalous pixel in the anomaly map, for signs of lesions (our choice)."""


class Case:
    """One image of a study with its report. Pixels are read on first use."""

    def __init__(self, row: dict, population: "ShardCases"):
        """``row``: the image's row of the cohort's table; ``population``: the open shard."""
        self.image_id, self.study_id = row["image_id"], row["study_id"]
        self.rules, self._population, self._shards = population.rules, population, population.shards
        self.names = {name: row[name] for name in ("study_id", "image_id", "subject_id", "split")}
        self.names |= {"unedited": is_unedited(self._shards["anomaly"], self.image_id)}
        self._line = population.lines[self.study_id]

    @cached_property
    def findings(self) -> list[Finding]:
        """Positive findings of the report section that is used."""
        return read_positive_findings(self._line["tuples"], self.rules)

    @cached_property
    def blocking_findings(self) -> list[Finding]:
        """Positive findings of the other report section, if ``blocking`` is strict. They only forbid negative pairs."""
        other_tuples = self._line.get("other_tuples") or () if self.rules.blocking == STRICT else ()
        return read_positive_findings(other_tuples, self.rules)

    @cached_property
    def related(self) -> list[str]:
        """Lesion types to which the report hints (vascular congestion: edema). Empty if the rule ``kinds`` is paper."""
        return find_related_lesions(self._line) if self.rules.kinds == STRICT else []

    @cached_property
    def zones(self) -> Zones:
        """Zone masks made on the edited image (without lesions). Algorithm 1's lung masks are of the original image."""
        return self._read_zones("anatomy")

    @cached_property
    def _organs(self) -> Zones:
        return self._read_zones("organs")

    def _read_zones(self, stage: str) -> Zones:
        return Zones(self._shards[stage].stored("mask", self.image_id), self._population.labels[stage])

    @property
    def heart(self) -> np.ndarray:
        """Heart mask of the organs stage, uint8 packed (H, W / 8)."""
        return self._organs[HEART]

    @property
    def _boxes(self) -> tuple[np.ndarray, np.ndarray]:
        return self._population.boxes_by_image.get(self.image_id, (np.zeros((0, 4)), np.zeros(0)))

    @cached_property
    def segmenter(self) -> LesionSegmenter:
        """The object that computes lesion masks of this image by Algorithm 1."""
        boxes, confidence = self._boxes
        return LesionSegmenter(
            anomaly=self._shards["anomaly"].get("anomaly", self.image_id),
            image=lambda: self._shards["frames"].get("image", self.image_id),
            zones=self.zones,
            lungs={lung: self._organs[lung] for lung in LUNGS},
            boxes=boxes,
            confidence=confidence,
            rules=self.rules,
            smallest_level=self._population.smallest_level,
        )

    def measure_signs(self) -> list[dict]:
        """Return one dict per valid location with a mask: the signs of a lesion that the image shows there.

        Keys: ``location``, ``box_confidence`` (highest confidence of a box there, or 0) and ``anomalous_fraction``
        (fraction of anomalous pixels, null without an anomaly map). A lesion type that the report does not mention is
        denied only at locations without signs.
        """
        labels = [place for place in VALID_LOCATIONS if place in self.zones.visible]
        if not labels:
            return []
        (boxes, confidence), anomalous = self._boxes, None
        if not self.names["unedited"]:
            anomalous = self._shards["anomaly"].get("anomaly", self.image_id) >= ANOMALOUS_LEVEL
        masks = np.unpackbits(np.stack([self.zones[label] for label in labels]), axis=-1)
        height, width = masks.shape[1:]
        clipped = clip_boxes(boxes, height, width)
        corners = algorithm.index_corners(clipped, width)
        areas = np.maximum((clipped[:, 2] - clipped[:, 0]) * (clipped[:, 3] - clipped[:, 1]), 1)
        rows = []
        for label, mask in zip(labels, masks, strict=True):
            is_there = algorithm.count_pixels_in_boxes(mask, corners) >= SMALLEST_OVERLAP * areas
            fraction = None if anomalous is None else cv2.countNonZero(mask & anomalous) / cv2.countNonZero(mask)
            best = float(confidence[is_there].max()) if is_there.any() else 0.0
            rows.append({"location": label, "box_confidence": best, "anomalous_fraction": fraction})
        return rows

    @property
    def lungs(self) -> np.ndarray:
        """Union of the lung masks of the organs stage, uint8 packed (H, W / 8)."""
        return self._organs.union(LUNGS)

    @property
    def to_original(self) -> np.ndarray:
        """Affine (2, 3) from frame pixels to original pixels."""
        return self._shards["frames"].get("to_original", self.image_id)


class ShardCases:
    """A shard's images with zones, boxes and a report, in the order of study and image id. A context manager."""

    def __init__(
        self,
        rules: Rules,
        smallest_level: int,
        *,
        cohort: str | Path,
        boxes: str | Path,
        boxes_excluded: str | Path,
        reports: str | Path,
        **shards: str | Path,
    ):
        """``shards``: HDF5 files frames, organs, anomaly, anatomy; ``smallest_level``: lowest grey-level threshold."""
        self._paths = shards
        self._cohort, self._boxes, self._boxes_excluded, self._reports = cohort, boxes, boxes_excluded, reports
        self.rules, self.smallest_level = rules, smallest_level

    def __enter__(self) -> "ShardCases":
        self._stack = ExitStack()
        with self._stack:
            self.shards = {name: self._stack.enter_context(Shard(path)) for name, path in self._paths.items()}
            self.labels = {stage: self.shards[stage].labels() for stage in ("organs", "anatomy")}
            excluded = set(read_table(self._boxes_excluded)["image_id"])
            self.lines = {line["study_id"]: line for line in read_lines(self._reports)}
            present = set(self.shards["anatomy"].ids) - excluded
            rows = read_table(self._cohort).select("image_id", "study_id", "subject_id", "split")
            rows = rows.filter(pl.col("image_id").is_in(present) & pl.col("study_id").is_in(self.lines.keys()))
            self.rows = rows.sort("study_id", "image_id").to_dicts()
            self.boxes_by_image = _boxes_by_image(read_table(self._boxes))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frame(self) -> tuple[int, ...]:
        """Shape (rows, columns) of a frame."""
        return self.shards["anatomy"].shape()[-2:]

    def __iter__(self) -> Iterator[Case]:
        return (Case(row, self) for row in self.rows)


def _boxes_by_image(table: pl.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return {image_id: (boxes (N, 4), confidence (N,))} of the boxes that are used, in the order of the table."""
    kept_rows = table.filter(pl.col("is_used")).sort("image_id", maintain_order=True)
    images, first = np.unique(kept_rows["image_id"].to_numpy(), return_index=True)
    boxes = np.split(kept_rows.select(CORNERS).to_numpy(), first[1:])
    confidence = np.split(kept_rows["confidence"].to_numpy(), first[1:])
    return dict(zip(images.tolist(), zip(boxes, confidence, strict=True), strict=True)) if len(kept_rows) else {}
