"""Read the images of a shard one by one, with the results of the earlier stages."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.edited_images import is_unedited
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import CORNERS
from cxr.ils.masks.evidence import compute_cardiothoracic_ratio
from cxr.ils.masks.findings import Finding, find_related_lesions, read_positive_findings
from cxr.ils.masks.rules import STRICT, Rules
from cxr.ils.masks.segmenter import LesionSegmenter
from cxr.ils.masks.zones import Zones


@dataclass
class InputShards:
    """The open shards of the earlier stages."""

    frames: Shard
    organs: Shard
    anomaly: Shard
    anatomy: Shard

    @cached_property
    def zone_labels(self) -> list[str]:
        """Labels of the anatomy masks."""
        return self.anatomy.labels()

    @cached_property
    def organ_labels(self) -> list[str]:
        """Labels of the organ masks."""
        return self.organs.labels()


class Case:
    """One image of a study with its report. Pixels are read on first use."""

    def __init__(
        self,
        row: dict,
        line: dict,
        boxes: tuple[np.ndarray, np.ndarray],
        shards: InputShards,
        rules: Rules,
        smallest_level: int,
    ):
        self.image_id, self.study_id = row["image_id"], row["study_id"]
        self.names = {name: row[name] for name in ("study_id", "image_id", "subject_id", "split")}
        self.names |= {"unedited": is_unedited(shards.anomaly, self.image_id)}
        self._smallest_level = smallest_level
        self._line, self._boxes, self._shards, self._rules = line, boxes, shards, rules

    @cached_property
    def findings(self) -> list[Finding]:
        """Positive findings of the used section."""
        return read_positive_findings(self._line["tuples"], self._rules)

    @cached_property
    def blocking_findings(self) -> list[Finding]:
        """Positive findings of the unused section, which only block locations (``blocking`` strict)."""
        return (
            read_positive_findings(self._line.get("other_tuples") or (), self._rules)
            if self._rules.blocking == STRICT
            else []
        )

    @cached_property
    def related(self) -> list[str]:
        """Lesion types with a related term in the report (``kinds`` strict)."""
        return find_related_lesions(self._line) if self._rules.kinds == STRICT else []

    @cached_property
    def zones(self) -> Zones:
        """Anatomy masks of the edited image, for locations, grounding and names; not for Algorithm 1's lungs."""
        return Zones(self._shards.anatomy.stored("mask", self.image_id), self._shards.zone_labels)

    @cached_property
    def _organs(self) -> Zones:
        return Zones(self._shards.organs.stored("mask", self.image_id), self._shards.organ_labels)

    def get_heart(self) -> np.ndarray:
        """Return the heart mask of the organs stage, uint8 packed (H, W / 8)."""
        return self._organs[HEART]

    @cached_property
    def _segmenter(self) -> LesionSegmenter:
        boxes, confidence = self._boxes
        return LesionSegmenter(
            anomaly=self._shards.anomaly.get("anomaly", self.image_id),
            image=lambda: self._shards.frames.get("image", self.image_id),
            zones=self.zones,
            lungs={lung: self._organs[lung] for lung in LUNGS},
            boxes=boxes,
            confidence=confidence,
            rules=self._rules,
            smallest_level=self._smallest_level,
        )

    def get_segmenter(self) -> LesionSegmenter:
        """Return the segmenter with the maps and boxes of the image."""
        return self._segmenter

    def cardiothoracic_ratio(self) -> float | None:
        """Return the cardiothoracic ratio in original pixels."""
        affine = self._shards.frames.get("to_original", self.image_id)
        return compute_cardiothoracic_ratio(self.get_heart(), self._organs.union(LUNGS), affine)


class ShardCases:
    """The images of an anatomy shard that the boxes stage did not exclude and that have a report line.

    A context manager; iterating yields a :class:`Case` per image, sorted by study and image.
    """

    def __init__(
        self,
        *,
        cohort: str | Path,
        frames: str | Path,
        organs: str | Path,
        anomaly: str | Path,
        anatomy: str | Path,
        boxes: str | Path,
        boxes_excluded: str | Path,
        reports: str | Path,
        rules: Rules,
        smallest_level: int,
    ):
        self._paths = {"frames": frames, "organs": organs, "anomaly": anomaly, "anatomy": anatomy}
        self._cohort, self._boxes, self._boxes_excluded, self._reports = cohort, boxes, boxes_excluded, reports
        self.rules, self.smallest_level = rules, smallest_level

    def __enter__(self) -> "ShardCases":
        self._stack = ExitStack()
        with self._stack:
            self._shards = InputShards(**{name: self._stack.enter_context(Shard(p)) for name, p in self._paths.items()})
            excluded = set(read_table(self._boxes_excluded)["image_id"])
            self._lines = {line["study_id"]: line for line in read_lines(self._reports)}
            present = set(self._shards.anatomy.ids) - excluded
            rows = read_table(self._cohort).select("image_id", "study_id", "subject_id", "split")
            self.rows = [
                row
                for row in rows.sort("study_id", "image_id").to_dicts()
                if row["image_id"] in present and row["study_id"] in self._lines
            ]
            self._found = _boxes_by_image(read_table(self._boxes))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frame(self) -> tuple[int, ...]:
        """Rows and columns of a frame."""
        return self._shards.anatomy.shape()[-2:]

    def __iter__(self) -> Iterator[Case]:
        nothing = np.zeros((0, 4)), np.zeros(0)
        for row in self.rows:
            boxes = self._found.get(row["image_id"], nothing)
            yield Case(row, self._lines[row["study_id"]], boxes, self._shards, self.rules, self.smallest_level)


def _boxes_by_image(table: pl.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return {image_id: (boxes (N, 4), confidence (N,))} of the kept boxes, in the order of the table."""
    kept_rows = table.filter(pl.col("kept")).sort("image_id", maintain_order=True)
    images, first = np.unique(kept_rows["image_id"].to_numpy(), return_index=True)
    boxes = np.split(kept_rows.select(CORNERS).to_numpy(), first[1:])
    confidence = np.split(kept_rows["confidence"].to_numpy(), first[1:])
    return dict(zip(images.tolist(), zip(boxes, confidence, strict=True), strict=True)) if len(kept_rows) else {}
