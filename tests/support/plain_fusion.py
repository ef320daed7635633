"""The fusion of readers' boxes by loops, and the boxes of VinBigData's table as both fusions take them."""

from pathlib import Path

import numpy as np

from cxr.annotations.regions import read_annotations as read_annotations
from cxr.geometry.fusion import fusion_order


def in_fusing_order(path: Path) -> dict:
    """Return the boxes of a table in the order in which they are fused: group, reader, boxes, name; and the numbers of
    images that it names (seen), and of those with boxes (images).
    """
    regions, seen = read_annotations("it", path, "vindr")
    keys = sorted({(one.image, one.label) for one in regions})
    number = {key: place for place, key in enumerate(keys)}
    group = np.array([number[one.image, one.label] for one in regions])
    reader, boxes = np.array([one.reader for one in regions]), np.array([one.box for one in regions])
    order = fusion_order(boxes, group, reader)
    name = np.array([keys[place][1] for place in group[order]])
    return {"group": group[order], "reader": reader[order], "boxes": boxes[order], "name": name, "seen": len(seen),
            "images": len({one.image for one in regions})}  # fmt: skip


def plain_fusion(boxes: list[list[float]], limit: float) -> list[list[float]]:
    """Return the fused boxes by lists and loops alone, as ensemble-boxes does: an oracle, and what it costs."""

    def overlap(one: list[float], other: list[float]) -> float:
        width = min(one[2], other[2]) - max(one[0], other[0])
        height = min(one[3], other[3]) - max(one[1], other[1])
        if width <= 0 or height <= 0:
            return 0.0
        shared = width * height
        both = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
        return shared / (both - shared)

    clusters: list[list[list[float]]] = []
    means: list[list[float]] = []
    for box in boxes:
        best, where = limit, -1
        for place, mean in enumerate(means):
            value = overlap(box, mean)
            if value > best:
                best, where = value, place
        if where < 0:
            clusters.append([box])
            means.append(list(box))
        else:
            clusters[where].append(box)
            means[where] = [sum(part) / len(clusters[where]) for part in zip(*clusters[where], strict=True)]
    return means
