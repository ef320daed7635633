"""Make the masks of one image from boxes, zones and the anomaly map (Algorithm 1). Threshold sets share results."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import LUNGS, SIDES, side_of
from cxr.geometry.boxes import clip_boxes
from cxr.ils.masks import algorithm
from cxr.ils.masks.algorithm import CONDITION_BITS, Region
from cxr.ils.masks.settings import Rules
from cxr.ils.masks.thresholds import Ratio, Thresholds, exact_fraction, is_at_least
from cxr.ils.masks.zones import Zones, cached_method, ground_labels


class Lesion(NamedTuple):
    """The result of Algorithm 1 for one finding."""

    mask: np.ndarray | None  # uint8 packed (H, W / 8); None if empty
    area: int  # Area of the mask in pixels
    verdicts: np.ndarray  # Bits of the conditions that each box fails, uint8 (N,)
    grounded: tuple[str, ...]  # Zone labels of the finding that the mask confirms
    pixels_by_label: dict[str, int]  # {zone label: pixels of the mask in the zone}
    outside: int  # Pixels of the mask outside the finding's zones


class Decision(NamedTuple):
    """Everything besides the image that determines a lesion mask. Findings with equal decisions share a mask."""

    labels: tuple[str, ...]  # Zone labels of the finding
    level: int  # Minimum grey level of an anomalous pixel
    passing_boxes: bytes  # One byte per box: 1 if the box meets all conditions, else 0
    fill: bool  # Whether the mask may be extended to the lung base

    @property
    def passing(self) -> tuple[int, ...]:
        """Indexes of the boxes that meet all conditions."""
        return tuple(box for box, holds in enumerate(self.passing_boxes) if holds)


class AnomalyLevel:
    """The anomaly map after thresholding and opening. ``signal``: number of anomalous pixels in each box, (N,)."""

    def __init__(self, segmenter: "LesionSegmenter", level: int):
        self._segmenter = segmenter
        binary = cv2.compare(segmenter.anomaly, level, cv2.CMP_GE) & 1
        self._opened = algorithm.apply_opening(binary)
        self.signal = algorithm.count_pixels_in_boxes(self._opened, segmenter.corners)

    @cached_property
    def components(self) -> algorithm.Components:
        """Connected components of the opened map."""
        return algorithm.find_components(self._opened)

    @cached_method
    def find_components_at(self, box: int) -> list[int]:
        """Return the labels of components of ``min_component_px`` pixels or more that meet the box of index ``box``."""
        touched_labels = self.components.find_touching(self._segmenter.boxes[box])
        smallest = self._segmenter.rules.min_component_px
        return [label for label in touched_labels if self._extent(label)[0] >= smallest]

    @cached_method
    def _extent(self, label: int) -> tuple[int, tuple[int, int, int, int]]:
        return self.components.extent(label)

    @cached_method
    def grow(self, label: int) -> Region:
        """Return the component with a label after region growing."""
        segmenter, steps = self._segmenter, self._segmenter.rules.grow_px
        height, width = segmenter.anomaly.shape
        _, (x1, y1, x2, y2) = self._extent(label)
        x1, y1, x2, y2 = max(x1 - steps, 0), max(y1 - steps, 0), min(x2 + steps, width), min(y2 + steps, height)
        place = slice(y1, y2), slice(x1, x2)
        component = (self.components.labels[place] == label).view(np.uint8)
        patch = algorithm.grow_component(
            component, segmenter.image[place], segmenter.lungs[place], segmenter.rules.grow_tolerance, steps
        )
        return Region(y1, x1, patch)


class LesionSegmenter:
    """Segmenter of the lesions of one image. It works in a window, the part of the frame with anatomy or anomalies.

    ``anomaly``: anomaly map, uint8 (H, W), W a multiple of 8. ``image``: function that returns the frame, uint8 (H, W).
    ``zones``: zone masks made on the edited image. ``lungs``: {right lung, left lung: mask, uint8 packed (H, W / 8)},
    made on the original image. Condition c4, region growing, the cut at the opposite lung and the filling of effusions
    use these lungs (paper A.3, A.5). ``boxes``: float (N, 4: x1, y1, x2, y2) in frame pixels. ``confidence``: one value
    per box, float (N,). ``smallest_level``: the lowest grey level at which the map will be thresholded; at 0 the window
    is the full frame.
    """

    def __init__(
        self,
        *,
        anomaly: np.ndarray,
        image: Callable[[], np.ndarray],
        zones: Zones,
        lungs: Mapping[str, np.ndarray],
        boxes: np.ndarray,
        confidence: np.ndarray,
        rules: Rules,
        smallest_level: int = 1,
    ):
        self.rules = rules
        self.shape = anomaly.shape
        self.zones = zones
        self._packed_lungs = lungs
        shapes = np.bitwise_or.reduce(zones.packed, axis=0) | lungs[LUNGS[0]] | lungs[LUNGS[1]]
        full_window = slice(0, self.shape[0]), slice(0, self.shape[1])
        self.window = (smallest_level > 0 and _find_window(anomaly, shapes)) or full_window
        rows, columns = self.window
        self.anomaly = np.ascontiguousarray(anomaly[rows, columns])
        self._image = image
        self.confidence = np.asarray(confidence, np.float64)
        frame_boxes = clip_boxes(boxes, *self.shape)
        self.area = (frame_boxes[:, 2] - frame_boxes[:, 0]) * (frame_boxes[:, 3] - frame_boxes[:, 1])
        corner = np.array([columns.start, rows.start] * 2)
        height, width = self.anomaly.shape
        self.boxes = np.clip(frame_boxes - corner, 0, [width, height, width, height])
        self.corners = algorithm.index_corners(self.boxes, width)
        self._verdicts: dict[tuple, np.ndarray] = {}
        self._lesions: dict[Decision, tuple[Lesion, frozenset[int]]] = {}

    @cached_property
    def image(self) -> np.ndarray:
        """The part of the frame in the window, uint8 (h, w)."""
        return np.ascontiguousarray(self._image()[self.window])

    @cached_property
    def lungs(self) -> np.ndarray:
        """Union of both lung masks in the window, uint8 (h, w)."""
        return self.lung(LUNGS[0]) | self.lung(LUNGS[1])

    @cached_method
    def lung(self, label: str) -> np.ndarray:
        """Return the mask of a lung in the window, uint8 (h, w)."""
        return self._unpack(self._packed_lungs[label])

    @cached_method
    def zone(self, label: str) -> np.ndarray:
        """Return the mask of a zone in the window, uint8 (h, w)."""
        return self._unpack(self.zones[label])

    def _unpack(self, packed: np.ndarray) -> np.ndarray:
        rows, columns = self.window
        return np.unpackbits(packed[rows, columns.start // 8 : columns.stop // 8], axis=-1)

    @cached_method
    def union(self, labels: tuple[str, ...]) -> tuple[np.ndarray, int, np.ndarray]:
        """Return (mask uint8 (h, w), its area, its pixels in each box int64 (N,)) for the union of zones."""
        mask = np.bitwise_or.reduce([self.zone(label) for label in labels])
        return mask, cv2.countNonZero(mask), algorithm.count_pixels_in_boxes(mask, self.corners)

    @cached_method
    def level(self, level: int) -> AnomalyLevel:
        """Return the anomaly map thresholded at a grey level."""
        return AnomalyLevel(self, level)

    def flag_failed_conditions(self, labels: tuple[str, ...], taus: Thresholds) -> np.ndarray:
        """Return each box's verdict for a finding, uint8 (N,), with the ``CONDITION_BITS`` of the failed conditions.

        For a box B, the finding's zones M and the anomalous pixels A, the conditions are c1: IoU(B, M) >= anatomy,
        c2: confidence >= conf, c3: |B and A| / |B| >= signal, and c4: IoU of B and either lung >= size. A box without
        area fails ``zero_area``. Results are cached, because the threshold sets of a grid share most conditions.
        """
        verdict = self._verdict

        def reaches_a_lung() -> np.ndarray:
            return np.logical_or(*(is_at_least(*overlap, taus.size) for overlap in self.lung_overlaps))

        return (
            verdict("anatomy", labels, taus.anatomy, lambda: is_at_least(*self.zone_overlap(labels), taus.anatomy))
            | verdict("conf", None, taus.conf, lambda: self.confidence >= taus.conf)
            | verdict("signal", taus.level, taus.signal, lambda: is_at_least(*self.signal(taus.level), taus.signal))
            | verdict("size", None, taus.size, reaches_a_lung)
            | verdict("zero_area", None, None, lambda: self.area > 0)
        )

    def _verdict(self, condition: str, operand: object, threshold: object, holds: Callable) -> np.ndarray:
        key = condition, operand, threshold
        if key not in self._verdicts:
            self._verdicts[key] = algorithm.flag_failures(condition, holds())
        return self._verdicts[key]

    def zone_overlap(self, labels: tuple[str, ...]) -> Ratio:
        """Return the number that condition c1 compares, the IoU of each box with the union of a finding's zones."""
        _, mask_area, shared = self.union(labels)
        return algorithm.compute_box_iou(self.area, shared, mask_area)

    def signal(self, level: int) -> Ratio:
        """Return the number that condition c3 compares, each box's fraction of anomalous pixels at a grey level."""
        return Ratio(self.level(level).signal, self.area)

    @cached_property
    def lung_overlaps(self) -> list[Ratio]:
        """The IoU of each box with the right and with the left lung. Condition c4 compares the larger."""
        masks = [self.lung(label) for label in LUNGS]
        shared = [algorithm.count_pixels_in_boxes(mask, self.corners) for mask in masks]
        areas = [cv2.countNonZero(mask) for mask in masks]
        return [algorithm.compute_box_iou(self.area, *pair) for pair in zip(shared, areas, strict=True)]

    def decide(self, labels: tuple[str, ...], taus: Thresholds, *, fill: bool) -> Decision:
        """Return the :class:`Decision` from which :meth:`segment` computes the lesion for the same arguments."""
        return Decision(labels, taus.level, (self.flag_failed_conditions(labels, taus) == 0).tobytes(), fill)

    def segment(self, labels: tuple[str, ...], taus: Thresholds, *, fill: bool) -> Lesion:
        """Return the lesion of a finding in the zones ``labels``; ``fill``: whether to extend it to the lung base."""
        verdicts = self.flag_failed_conditions(labels, taus)
        decision = Decision(labels, taus.level, (verdicts == 0).tobytes(), fill)
        if decision not in self._lesions:
            self._lesions[decision] = self._lesion(decision)
        lesion, productive = self._lesions[decision]
        verdicts[[box for box in decision.passing if box not in productive]] |= CONDITION_BITS["empty_after_refine"]
        return lesion._replace(verdicts=verdicts)

    def _lesion(self, decision: Decision) -> tuple[Lesion, frozenset[int]]:
        nothing = Lesion(None, 0, np.zeros(0, np.uint8), (), {}, 0), frozenset()
        labels, fill = decision.labels, decision.fill
        if not decision.passing:
            return nothing
        regions, productive = self._refine(labels, self.level(decision.level), decision.passing)
        mask = np.zeros(self.anomaly.shape, np.uint8)
        for region in regions:
            mask[region.place] |= region.patch
        if fill and productive:
            mask = self._fill_effusion(mask, labels, productive)
        area = cv2.countNonZero(mask)
        if not area:
            return nothing
        frame_mask = self._pack_frame(mask)
        pixels_by_label = self.zones.count_pixels_by_label(frame_mask)
        confirmed = self._ground(labels, pixels_by_label, area, productive)
        outside = area - cv2.countNonZero(mask & self.union(labels)[0])
        return Lesion(frame_mask, area, np.zeros(0, np.uint8), confirmed, pixels_by_label, outside), productive

    def _refine(
        self, labels: tuple[str, ...], level: AnomalyLevel, passing: tuple[int, ...]
    ) -> tuple[list[Region], frozenset[int]]:
        """Return (refined components of the passing boxes, indexes of the productive boxes).

        A passing box is productive if a component is left after the cut of pixels in closed lungs (see
        :func:`algorithm.cut_closed_lungs`). A cut that leaves a box without a component can close the lung that only
        this box opened, so the cut repeats until no lung changes.
        """
        touched = {box: level.find_components_at(box) for box in passing}
        components = [label for component_labels in touched.values() for label in component_labels]
        shapes: dict[int, Region | None] = {label: level.grow(label) for label in components}
        productive = frozenset(box for box in passing if touched[box])
        opened = None
        while True:
            sides = frozenset(side_of(label) for label in labels if self._meets_productive_box(label, productive))
            if sides == opened:
                break
            opened = sides
            closed, open_ = self._find_closed_and_open(sides)
            shapes = {
                label: algorithm.cut_closed_lungs(level.grow(label), closed, open_, self.rules.min_component_px)
                for label in shapes
            }
            productive = frozenset(box for box in productive if any(shapes[label] for label in touched[box]))
        return [shape for shape in shapes.values() if shape is not None], productive

    @cached_method
    def _find_closed_and_open(self, open_sides: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
        lungs = {True: np.zeros(self.anomaly.shape, np.uint8), False: np.zeros(self.anomaly.shape, np.uint8)}
        for side, lung in zip(SIDES, LUNGS, strict=True):
            lungs[side in open_sides] |= self.lung(lung)
        return lungs[False] & (1 - lungs[True]), lungs[True]

    def _meets_productive_box(self, label: str, productive: frozenset[int]) -> bool:
        shared = self.union((label,))[2]
        return any(shared[box] > 0 for box in productive)

    def _ground(
        self, labels: tuple[str, ...], pixels_by_label: dict[str, int], area: int, productive: frozenset[int]
    ) -> tuple[str, ...]:
        meets = {label: self._meets_productive_box(label, productive) for label in labels}
        return ground_labels(
            labels, pixels_by_label, area, meets, min_px=self.rules.ground_min_px, min_share=self.rules.ground_min_share
        )

    def _fill_effusion(self, mask: np.ndarray, labels: tuple[str, ...], productive: frozenset[int]) -> np.ndarray:
        """Return the mask plus the lowest part of each lung whose base is in ``labels`` and confirmed by the mask."""
        area = cv2.countNonZero(mask)
        pixels_by_label = self.zones.count_pixels_by_label(self._pack_frame(mask))
        share = exact_fraction(self.rules.effusion_fill_share)
        confirmed = self._ground(labels, pixels_by_label, area, productive)
        filled = mask
        for side, lung in zip(SIDES, LUNGS, strict=True):
            base = f"{side} lung base"
            if base in confirmed and pixels_by_label[base]:
                filled = filled | algorithm.crop_to_base(self.lung(lung), share)
        return filled

    def _pack_frame(self, mask: np.ndarray) -> np.ndarray:
        rows, columns = self.window
        packed = np.zeros((self.shape[0], self.shape[1] // 8), np.uint8)
        packed[rows, columns.start // 8 : columns.stop // 8] = np.packbits(mask, axis=-1)
        return packed


def _find_window(anomaly: np.ndarray, anatomy_mask: np.ndarray) -> tuple[slice, slice] | None:
    """Return (rows, columns) of the smallest byte-aligned window around anatomy and anomalies; None without any."""
    covered = anatomy_mask | np.packbits(anomaly > 0, axis=-1)
    rows, columns = np.flatnonzero(covered.any(axis=1)).tolist(), np.flatnonzero(covered.any(axis=0)).tolist()
    return (slice(rows[0], rows[-1] + 1), slice(columns[0] * 8, columns[-1] * 8 + 8)) if rows else None
