"""Components of a mask (its connected parts, or its instances) and their measurements: position, shape, contrast."""

import math
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np


@dataclass(frozen=True)
class Component:
    """A connected component or an instance. ``box``: half-open (x1, y1, x2, y2). ``pixels``: its mask inside the box,
    bool (y2 - y1, x2 - x1). ``area``: number of its pixels."""

    box: tuple[int, int, int, int]
    pixels: np.ndarray
    area: int

    @property
    def window(self) -> tuple[slice, slice]:
        """The box as an index into an array (H, W)."""
        x1, y1, x2, y2 = self.box
        return np.s_[y1:y2, x1:x2]

    @cached_property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of the pixels, counted from the upper left corner of the box, two int64 arrays (area,)."""
        return np.nonzero(self.pixels)

    @cached_property
    def means(self) -> tuple[float, float]:
        """(mean row, mean column) of the component's pixels, counted from the upper left corner of the box."""
        y, x = self.points
        return int(y.sum()) / self.area, int(x.sum()) / self.area

    @property
    def centroid(self) -> tuple[float, float]:
        """Mean position (x, y) of the pixels' centres in the image, px."""
        y, x = self.means
        return x + 0.5 + self.box[0], y + 0.5 + self.box[1]

    @property
    def position(self) -> tuple[int, int, int, int]:
        """The key by which an image's components are ordered: y1, x1, y2, x2."""
        x1, y1, x2, y2 = self.box
        return y1, x1, y2, x2

    @property
    def elongation(self) -> float:
        """1 - sqrt(l2 / l1), which is 0 for a disc. l1 >= l2 are the eigenvalues of the covariance of the pixels'
        positions, to which the variance 1/12 of a single pixel is added."""
        y, x = (at - mean for at, mean in zip(self.points, self.means, strict=True))
        a, b, c = (float(np.add.reduce(product)) / self.area for product in (x * x, y * y, x * y))
        a, b = a + 1 / 12, b + 1 / 12
        mean, spread = (a + b) / 2, math.hypot((a - b) / 2, c)
        return 1 - math.sqrt(max(mean - spread, 0.0) / (mean + spread))

    @property
    def solidity(self) -> float:
        """The area divided by the area of the convex hull of the pixels' corners."""
        filled = np.flatnonzero(self.pixels.any(axis=1))
        rows = self.pixels if len(filled) == len(self.pixels) else self.pixels[filled]
        starts, ends = rows.argmax(axis=1), rows.shape[1] - rows[:, ::-1].argmax(axis=1)
        corners = [np.stack([x, y], axis=1) for x in (starts, ends) for y in (filled, filled + 1)]
        hull = cv2.convexHull(np.concatenate(corners).astype(np.int32))
        return self.area / float(cv2.contourArea(hull))

    @property
    def compactness(self) -> float:
        """4 pi area / P^2, with the perimeter P from the Cauchy-Crofton formula in four directions."""
        plane = np.pad(self.pixels, 1)
        across = np.count_nonzero(plane[:, 1:] != plane[:, :-1]) + np.count_nonzero(plane[1:] != plane[:-1])
        slanted = np.count_nonzero(plane[1:, 1:] != plane[:-1, :-1]) + np.count_nonzero(
            plane[1:, :-1] != plane[:-1, 1:]
        )
        length = math.pi / 2 * (across + slanted / math.sqrt(2)) / 4
        return 4 * math.pi * self.area / length**2


def find_components(mask: np.ndarray) -> list[Component]:
    """Return the 8-connected components of a mask (H, W), ordered by y1, x1, y2, x2."""
    plane = np.ascontiguousarray(mask, bool).view(np.uint8)
    filled = cv2.countNonZero(plane)
    if not filled:
        return []
    # below 65,535 pixels the labels fit in 16 bits, which takes a third of the time
    kind = cv2.CV_16U if filled < np.iinfo(np.uint16).max else cv2.CV_32S
    _, numbers, stats, _ = cv2.connectedComponentsWithStats(plane, connectivity=8, ltype=kind)
    parts = [
        Component((x, y, x + w, y + h), numbers[y : y + h, x : x + w] == number, area)
        for number, (x, y, w, h, area) in enumerate(stats[1:].tolist(), 1)
    ]
    return sorted(parts, key=lambda component: component.position)


def find_instances(numbers: np.ndarray, mask: np.ndarray) -> list[Component]:
    """Return the instances that lie by more than half in the mask of a class, ordered by y1, x1, y2, x2. ``numbers``:
    number of the instance at each pixel, (H, W), 0 outside."""
    rows, columns = np.nonzero(numbers)
    order = np.argsort(numbers[rows, columns], kind="stable")
    values, starts = np.unique(numbers[rows, columns][order], return_index=True)
    parts = []
    for value, places in zip(values, np.split(order, starts[1:]), strict=False):
        y, x = rows[places], columns[places]
        box = (int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1)
        component = Component(box, numbers[box[1] : box[3], box[0] : box[2]] == value, len(places))
        if 2 * int((component.pixels & mask[component.window]).sum()) > component.area:
            parts.append(component)
    return sorted(parts, key=lambda component: component.position)


def contrast_and_texture(component: Component, grey: np.ndarray, taken: np.ndarray) -> tuple[float, float]:
    """Return (contrast, texture) of a component compared with a ring of equal area around it, NaN if no ring fits.

    Contrast is the mean grey level inside minus that of the ring, divided by the pooled SD. Texture is the SD inside
    divided by that of the ring. The ring has the nearest pixels that no component has ``taken``, bool (H, W)."""
    reach = math.ceil(math.sqrt(component.area)) + 3
    x1, y1, x2, y2 = component.box
    y_min, x_min = max(0, y1 - reach), max(0, x1 - reach)
    around = np.s_[y_min : y2 + reach, x_min : x2 + reach]
    outside = np.ones(grey[around].shape, np.uint8)
    outside[y1 - y_min : y2 - y_min, x1 - x_min : x2 - x_min][component.pixels] = 0
    distance = cv2.distanceTransform(outside, cv2.DIST_L2, 5)
    free = ~taken[around]
    near = distance[free]
    if len(near) < component.area // 2 or component.area < 2 or not len(near):
        return math.nan, math.nan
    last = min(component.area, len(near)) - 1
    ring = grey[around][free & (distance <= np.partition(near, last)[last])].astype(np.float64)
    inside = grey[component.window][component.pixels].astype(np.float64)
    spread = math.sqrt((inside.var() + ring.var()) / 2)
    difference = float(inside.mean() - ring.mean())
    contrast = difference / spread if spread > 0 else math.copysign(math.inf, difference) if difference else 0.0
    texture = float(inside.std() / ring.std()) if ring.std() > 0 else math.nan
    return contrast, texture
