"""Painters by name, and where each may change the image. A finding of ``semisyn.findings_file`` names its painter."""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes
from cxr.painting import airspace, atelectasis, cardiomegaly, edema, effusion, pneumothorax
from cxr.painting.chest import RIM, Chest, PaintedImage, PaintRequest

LUNG, BOX, THORAX = "lung", "box", "thorax"


@dataclass(frozen=True)
class Painter:
    """``paint``: paints a finding; ``region``: where it may change the image: LUNG (the box within the lung and its
    rim), BOX (the whole box) or THORAX (all columns of the thorax)."""

    paint: Callable[[Chest, PaintRequest, np.random.Generator], PaintedImage]
    region: str = LUNG


PAINTERS = {
    "opacity": Painter(airspace.paint),
    "consolidation": Painter(airspace.paint),
    "nodule": Painter(airspace.paint),
    "edema": Painter(edema.paint),
    "atelectasis": Painter(atelectasis.paint, BOX),
    "effusion": Painter(effusion.paint, BOX),
    "pneumothorax": Painter(pneumothorax.paint),
    "cardiomegaly": Painter(cardiomegaly.paint, THORAX),
}


def region_of(painter: str, chest: Chest, request: PaintRequest) -> np.ndarray:
    """Return where a painter may change the image, bool (H, W); outside it the painted image equals the source."""
    shape, region = chest.image.shape, PAINTERS[painter].region
    mask = np.zeros(shape, bool)
    if region == THORAX:
        mask[:, bounding_box(chest.right)[0] : bounding_box(chest.left)[2]] = True
        return mask
    for place in request.places:
        x1, y1, x2, y2 = clip_boxes(np.array(place.box), *shape)[0]
        near = cv2.distanceTransform((~chest.lung(place.side)).astype(np.uint8), cv2.DIST_L2, 5) <= RIM
        mask[y1:y2, x1:x2] |= region == BOX
        if region == LUNG:
            mask[y1:y2, x1:x2] |= near[y1:y2, x1:x2]
    return mask
