"""Run Algorithm 1 on one image. Intermediate results are computed once and shared by findings and threshold sets."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import LUNGS, SIDES, side_of
from cxr.geometry.boxes import clip_boxes
from cxr.ils.masks import algorithm, refine
from cxr.ils.masks.algorithm import CONDITION_BITS
from cxr.ils.masks.grounding import ground_labels
from cxr.ils.masks.options import Rules
from cxr.ils.masks.refine import Region
from cxr.ils.masks.thresholds import Ratio, Thresholds, exact_fraction, is_at_least
from cxr.ils.masks.zones import Zones


class Lesion(NamedTuple):
    """What Algorithm 1 gives for one finding.

    ``mask`` uint8 packed (H, W / 8), None where it is empty; ``verdicts`` uint8 (N,), one per box; ``grounded`` zone
    labels; ``held`` pixels of the mask in each zone label; ``outside`` pixels outside the finding's own labels.
    """

    mask: np.ndarray | None
    area: int
    verdicts: np.ndarray
    grounded: tuple[str, ...]
    held: dict[str, int]
    outside: int


class Decision(NamedTuple):
    """Everything that a lesion depends on besides its image. Threshold sets with the same decision share the lesion.

    ``passing_boxes``: one byte per box, whether it meets all conditions.
    """

    labels: tuple[str, ...]
    level: int
    passing_boxes: bytes
    fill: bool

    @property
    def passing(self) -> tuple[int, ...]:
        """Indexes of the boxes that meet all conditions."""
        return tuple(box for box, holds in enumerate(self.passing_boxes) if holds)


class AnomalyLevel:
    """The anomaly map at one grey level: the signal in every box, components, and their refined shapes."""

    def __init__(self, picture: "LesionSegmenter", level: int):
        self._picture = picture
        binary = cv2.compare(picture.anomaly, level, cv2.CMP_GE) & 1
        opened = algorithm.apply_opening(binary)
        self.signal = algorithm.count_pixels_in_boxes(
            opened if picture.rules.denoise == "both" else binary, picture.corners
        )
        self._opened = opened
        self._extents: dict[int, tuple[int, tuple[int, int, int, int]]] = {}
        self._touched: dict[int, list[int]] = {}
        self._grown: dict[int, Region] = {}

    @cached_property
    def components(self) -> algorithm.Components:
        """Components of the opened map."""
        return algorithm.find_components(self._opened)

    def touched(self, box: int) -> list[int]:
        """Return the components of at least the smallest size that share a pixel with a box."""
        if box not in self._touched:
            touched_labels = self.components.touched(self._picture.boxes[box])
            smallest = self._picture.rules.min_component_px
            self._touched[box] = [label for label in touched_labels if self._extent(label)[0] >= smallest]
        return self._touched[box]

    def _extent(self, label: int) -> tuple[int, tuple[int, int, int, int]]:
        if label not in self._extents:
            self._extents[label] = self.components.extent(label)
        return self._extents[label]

    def grown(self, label: int) -> Region:
        """Return a component after growth."""
        if label not in self._grown:
            picture, steps = self._picture, self._picture.rules.grow_px
            height, width = picture.anomaly.shape
            _, (x1, y1, x2, y2) = self._extent(label)
            x1, y1, x2, y2 = max(x1 - steps, 0), max(y1 - steps, 0), min(x2 + steps, width), min(y2 + steps, height)
            place = slice(y1, y2), slice(x1, x2)
            component = (self.components.labels[place] == label).view(np.uint8)
            patch = refine.grow_component(
                component, picture.image[place], picture.lungs[place], picture.rules.grow_tolerance, steps
            )
            self._grown[label] = Region(y1, x1, patch)
        return self._grown[label]


class LesionSegmenter:
    """An image's maps inside the window that holds all of them, and its kept boxes.

    Args: ``anomaly`` uint8 (H, W), W a multiple of 8; ``image`` returns the frame, uint8 (H, W), and is called only if
    a component grows; ``zones`` the anatomy of the same frame, made on the edited image, for locations, grounding and
    names; ``lungs`` {right lung, left lung: uint8 packed (H, W / 8)} of the organs stage, made on the image, for the
    L_r and L_l of c4, of growth, of the cut at the opposite lung and of the effusion's fill (paper A.3, A.5); ``boxes``
    float (N, 4: x1, y1, x2, y2) in frame pixels, anywhere; ``confidence`` float (N,); ``smallest_level`` the lowest
    grey level that will be used: at level 0 every pixel of the frame counts, not only those of the window.
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
        self.window = _window(anomaly, shapes) if smallest_level > 0 else _whole_frame(anomaly)
        rows, columns = self.window
        self.anomaly = np.ascontiguousarray(anomaly[rows, columns])
        self._image = image
        self.confidence = np.asarray(confidence, np.float64)
        frame_boxes = clip_boxes(boxes, *self.shape)
        self.area = algorithm.compute_box_areas(frame_boxes)
        corner = np.array([columns.start, rows.start] * 2)
        height, width = self.anomaly.shape
        self.boxes = np.clip(frame_boxes - corner, 0, [width, height, width, height])
        self.corners = algorithm.index_corners(self.boxes, width)
        self._levels: dict[int, AnomalyLevel] = {}
        self._unpacked: dict[str, np.ndarray] = {}
        self._lungs: dict[str, np.ndarray] = {}
        self._unions: dict[tuple[str, ...], tuple[np.ndarray, int, np.ndarray]] = {}
        self._verdicts: dict[tuple, np.ndarray] = {}
        self._closings: dict[frozenset[str], tuple[np.ndarray, np.ndarray]] = {}
        self._lesions: dict[Decision, tuple[Lesion, frozenset[int]]] = {}

    @cached_property
    def image(self) -> np.ndarray:
        """The frame in the window, uint8 (h, w)."""
        return np.ascontiguousarray(self._image()[self.window])

    @cached_property
    def lungs(self) -> np.ndarray:
        """Both lungs on the image, uint8 (h, w) in the window."""
        return self.lung(LUNGS[0]) | self.lung(LUNGS[1])

    def lung(self, label: str) -> np.ndarray:
        """Return a lung on the image in the window, uint8 (h, w)."""
        if label not in self._lungs:
            self._lungs[label] = self._unpack(self._packed_lungs[label])
        return self._lungs[label]

    def zone(self, label: str) -> np.ndarray:
        """Return a zone mask in the window, uint8 (h, w)."""
        if label not in self._unpacked:
            self._unpacked[label] = self._unpack(self.zones[label])
        return self._unpacked[label]

    def _unpack(self, packed: np.ndarray) -> np.ndarray:
        rows, columns = self.window
        return np.unpackbits(packed[rows, columns.start // 8 : columns.stop // 8], axis=-1)

    def union(self, labels: tuple[str, ...]) -> tuple[np.ndarray, int, np.ndarray]:
        """Return the union of zone masks (uint8, window), its pixels, and the pixels of it in every box."""
        if labels not in self._unions:
            mask = self.zone(labels[0])
            for label in labels[1:]:
                mask = mask | self.zone(label)
            self._unions[labels] = mask, cv2.countNonZero(mask), algorithm.count_pixels_in_boxes(mask, self.corners)
        return self._unions[labels]

    def level(self, level: int) -> AnomalyLevel:
        """Return the anomaly map at a grey level."""
        if level not in self._levels:
            self._levels[level] = AnomalyLevel(self, level)
        return self._levels[level]

    def failed(self, labels: tuple[str, ...], taus: Thresholds) -> np.ndarray:
        """Return the conditions c1..c4 that each box fails for a finding, uint8 (N,) of ``VERDICTS`` bits; 0 = none.

        c1 = IoU(B, M) >= anatomy, c2 = confidence >= conf, c3 = |B and A| / |B| >= signal, c4 = IoU(B, either lung) >=
        size. A box without area is skipped. The result of each condition is kept, because the sets of a grid share most
        of them.
        """
        verdict = self._verdict
        return (
            verdict("anatomy", labels, taus.anatomy, lambda: is_at_least(*self.place_overlap(labels), taus.anatomy))
            | verdict("conf", None, taus.conf, lambda: self.confidence >= taus.conf)
            | verdict("signal", taus.level, taus.signal, lambda: is_at_least(*self.signal(taus.level), taus.signal))
            | verdict("size", None, taus.size, lambda: self._lung_sized(taus.size))
            | verdict("zero_area", None, None, lambda: self.area > 0)
        )

    def _verdict(
        self, condition: str, operand: object, threshold: object, holds: Callable[[], np.ndarray]
    ) -> np.ndarray:
        key = condition, operand, threshold
        if key not in self._verdicts:
            self._verdicts[key] = algorithm.flag_failures(condition, holds())
        return self._verdicts[key]

    def place_overlap(self, labels: tuple[str, ...]) -> Ratio:
        """Return the value of c1 for every box: the IoU with a finding's zones."""
        _, mask_area, shared = self.union(labels)
        return algorithm.compute_box_iou(self.area, shared, mask_area)

    def signal(self, level: int) -> Ratio:
        """Return the value of c3 for every box: the share of its pixels that are anomalous at a grey level."""
        return Ratio(self.level(level).signal, self.area)

    def _lung_sized(self, share: Fraction) -> np.ndarray:
        return np.logical_or(*(is_at_least(*overlap, share) for overlap in self.lung_overlaps))

    @cached_property
    def lung_overlaps(self) -> list[Ratio]:
        """The values of c4 for every box: the IoU with each lung; the larger counts."""
        masks = [self.lung(label) for label in LUNGS]
        return [
            algorithm.compute_box_iou(
                self.area, algorithm.count_pixels_in_boxes(mask, self.corners), cv2.countNonZero(mask)
            )
            for mask in masks
        ]

    def decision(self, labels: tuple[str, ...], taus: Thresholds, *, fill: bool) -> Decision:
        """Return the decision of a finding's lesion; see :meth:`lesion`."""
        return Decision(labels, taus.level, (self.failed(labels, taus) == 0).tobytes(), fill)

    def lesion(self, labels: tuple[str, ...], taus: Thresholds, *, fill: bool) -> Lesion:
        """Run Algorithm 1, refinement and grounding for a finding.

        ``labels``: its zone labels, at least one; ``fill``: whether it is an effusion that may be filled to the base.
        """
        verdicts = self.failed(labels, taus)
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
        regions, productive = self._refined(labels, self.level(decision.level), decision.passing)
        mask = np.zeros(self.anomaly.shape, np.uint8)
        for region in regions:
            mask[region.place] |= region.patch
        if fill and productive:
            mask = self._filled(mask, labels, productive)
        area = cv2.countNonZero(mask)
        if not area:
            return nothing
        frame_mask = self._whole(mask)
        pixels_by_label = self.zones.held(frame_mask)
        confirmed = self._grounded(labels, pixels_by_label, area, productive)
        outside = area - cv2.countNonZero(mask & self.union(labels)[0])
        return Lesion(frame_mask, area, np.zeros(0, np.uint8), confirmed, pixels_by_label, outside), productive

    def _refined(
        self, labels: tuple[str, ...], level: AnomalyLevel, passing: tuple[int, ...]
    ) -> tuple[list[Region], frozenset[int]]:
        """Return the refined components of the passing boxes, and the boxes that are productive.

        Cutting can leave a box without a component. Then a side that only this box held open closes. So the cut repeats
        until nothing changes; it ends because there are two sides and the set of boxes only shrinks.
        """
        touched = {box: level.touched(box) for box in passing}
        shapes: dict[int, Region | None] = {
            label: level.grown(label) for component_labels in touched.values() for label in component_labels
        }
        productive = frozenset(box for box in passing if touched[box])
        opened = None
        while self.rules.opposite_lung == "cut" and (sides := self._open_sides(labels, productive)) != opened:
            opened = sides
            closed, open_ = self._closed(sides)
            shapes = {
                label: refine.cut_closed_lungs(level.grown(label), closed, open_, self.rules.min_component_px)
                for label in shapes
            }
            productive = frozenset(box for box in productive if any(shapes[label] for label in touched[box]))
        return [shape for shape in shapes.values() if shape is not None], productive

    def _open_sides(self, labels: tuple[str, ...], productive: frozenset[int]) -> frozenset[str]:
        return frozenset(side_of(label) for label in labels if self._meets(label, productive))

    def _closed(self, open_sides: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
        if open_sides not in self._closings:
            self._closings[open_sides] = self._closing(open_sides)
        return self._closings[open_sides]

    def _closing(self, open_sides: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.zeros(self.anomaly.shape, np.uint8)
        open_ = closed = nothing
        for side, lung in zip(SIDES, LUNGS, strict=True):
            if side in open_sides:
                open_ = open_ | self.lung(lung)
            else:
                closed = closed | self.lung(lung)
        return closed & (1 - open_), open_

    def _meets(self, label: str, productive: frozenset[int]) -> bool:
        shared = self.union((label,))[2]
        return any(shared[box] > 0 for box in productive)

    def _grounded(
        self, labels: tuple[str, ...], pixels_by_label: dict[str, int], area: int, productive: frozenset[int]
    ) -> tuple[str, ...]:
        meets = {label: self._meets(label, productive) for label in labels}
        return ground_labels(
            labels, pixels_by_label, area, meets, min_px=self.rules.ground_min_px, min_share=self.rules.ground_min_share
        )

    def _filled(self, mask: np.ndarray, labels: tuple[str, ...], productive: frozenset[int]) -> np.ndarray:
        """Add the lowest part of each lung whose base the mask grounds; both sides are judged before any is filled."""
        area = cv2.countNonZero(mask)
        pixels_by_label = self.zones.held(self._whole(mask))
        share = exact_fraction(self.rules.effusion_fill_share)
        confirmed = self._grounded(labels, pixels_by_label, area, productive)
        filled = mask
        for side, lung in zip(SIDES, LUNGS, strict=True):
            base = f"{side} lung base"
            if base in confirmed and pixels_by_label[base]:
                filled = filled | refine.crop_to_base(self.lung(lung), share)
        return filled

    def _whole(self, mask: np.ndarray) -> np.ndarray:
        """Return a mask of the window as packed bits of the whole frame."""
        rows, columns = self.window
        packed = np.zeros((self.shape[0], self.shape[1] // 8), np.uint8)
        packed[rows, columns.start // 8 : columns.stop // 8] = np.packbits(mask, axis=-1)
        return packed


def _window(anomaly: np.ndarray, anatomy_mask: np.ndarray) -> tuple[slice, slice]:
    """Return the smallest rows and whole bytes of columns that hold every zone, lung and anomalous pixel.

    ``anatomy_mask``: the union of zones and lungs, uint8 packed (H, W / 8). If there is no such pixel, the whole frame.
    """
    height, width = anomaly.shape
    rows, columns = np.flatnonzero(anatomy_mask.any(axis=1)), np.flatnonzero(anatomy_mask.any(axis=0)) * 8
    x, y, w, h = cv2.boundingRect(anomaly)
    y_start = min([*rows[:1].tolist(), *([y] if h else [])], default=0)
    y_stop = max([*(rows[-1:] + 1).tolist(), *([y + h] if h else [])], default=height)
    x_start = min([*columns[:1].tolist(), *([x // 8 * 8] if w else [])], default=0)
    x_stop = max([*(columns[-1:] + 8).tolist(), *([-(-(x + w) // 8) * 8] if w else [])], default=width)
    return slice(y_start, y_stop), slice(x_start, x_stop)


def _whole_frame(anomaly: np.ndarray) -> tuple[slice, slice]:
    return slice(0, anomaly.shape[0]), slice(0, anomaly.shape[1])
