"""Stage III by rules: looks at pixels inside the answer boxes, not at masks; on chest films it says unjudged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from cxr.medground.logic.scene import Scene
from cxr.medground.verification.claims import Claims

CONTRAST_DOMAINS = ("nuclei", "bacteria", "ultrasound", "dermoscopy")
"""Kinds of images on which contrast tells a region from its surroundings; measured for nuclei alone."""


@dataclass(frozen=True)
class Judgement:
    """verdict: grounded, rejected or unjudged; reason: a code where it is rejected; observed: what was measured or
    seen; detail: words on the reason.
    """

    verdict: str
    reason: str = ""
    observed: tuple[dict, ...] = ()
    detail: str = ""


def seen_in(grey: np.ndarray, box: Sequence[int], enlarge: float) -> dict:
    """Return what stands out in a box (x1, y1, x2, y2; px): effect size against its ring, and the blob's overlap.

    ``enlarge``: how far the crop reaches beyond the box, as a share of its longer side.
    """
    x1, y1, x2, y2 = (int(v) for v in box)
    reach = max(3, round(enlarge * max(x2 - x1, y2 - y1)))
    top, left = max(0, y1 - reach), max(0, x1 - reach)
    crop = grey[top : y2 + reach, left : x2 + reach].astype(np.float64)
    inner = np.zeros(crop.shape, bool)
    inner[y1 - top : y2 - top, x1 - left : x2 - left] = True
    # a box has corners that its region does not fill: what stands out is measured in the inscribed ellipse
    yy, xx = np.nonzero(inner)
    round_part = np.zeros_like(inner)
    cy, cx = (yy.mean(), xx.mean()) if len(yy) else (0, 0)
    ry, rx = max((y2 - y1) / 2, 0.5), max((x2 - x1) / 2, 0.5)
    keep = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 <= 1
    round_part[yy[keep], xx[keep]] = True
    ring = ~inner
    if ring.sum() < 8 or round_part.sum() < 4:
        return {"effect": None, "blob_iou": 0.0}
    inside, outside = crop[round_part], crop[ring]
    spread = math.sqrt((inside.var() + outside.var()) / 2)
    effect = float((inside.mean() - outside.mean()) / spread) if spread > 0 else 0.0
    return {
        "effect": round(effect, 3),
        "blob_iou": round(_blob(crop, effect > 0, (x1 - left, y1 - top, x2 - left, y2 - top)), 3),
    }


def _blob(crop: np.ndarray, bright: bool, box: tuple[int, int, int, int]) -> float:
    """Return the IoU of the box with the box of the Otsu blob that overlaps it most."""
    grey = cv2.GaussianBlur(np.clip(crop, 0, 255).astype(np.uint8), (3, 3), 0)
    how = cv2.THRESH_BINARY if bright else cv2.THRESH_BINARY_INV
    _, mask = cv2.threshold(grey, 0, 1, how + cv2.THRESH_OTSU)
    count, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    best = 0.0
    for x, y, w, h, _ in stats[1:count]:
        shared = max(0, min(x + w, box[2]) - max(x, box[0])) * max(0, min(y + h, box[3]) - max(y, box[1]))
        union = w * h + (box[2] - box[0]) * (box[3] - box[1]) - shared
        best = max(best, shared / union)
    return best


def judge(
    grey: np.ndarray, boxes: Sequence[Sequence[int]], claims: Claims, scene: Scene, options: Mapping
) -> Judgement:
    """Return the judgement of a query: ``boxes`` of its answer; ``options``: contrast, blob_iou, enlarge."""
    if scene.domain not in CONTRAST_DOMAINS:
        return Judgement("unjudged")
    observed = tuple(seen_in(grey, box, options["enlarge"]) for box in boxes)
    for one in observed:
        effect = one["effect"]
        stands_out = effect is not None and (
            abs(effect) >= options["contrast"] or one["blob_iou"] >= options["blob_iou"]
        )
        if not stands_out:
            return Judgement("rejected", "not_grounded", observed)
        told = {"appearance:bright": -1, "appearance:dark": 1}
        if any(sign * (effect or 0) >= options["contrast"] for atom, sign in told.items() if atom in claims.atoms):
            return Judgement("rejected", "not_grounded", observed)
    return Judgement("grounded", "", observed)
