"""The painters by name, and the region that each may change. The file ``semisyn.findings_file`` names the painter of
each finding."""

from collections.abc import Callable

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes
from cxr.painting import airspace, atelectasis, cardiomegaly, edema, effusion, pneumothorax
from cxr.painting.chest import RIM, Chest, PaintedImage, PaintRequest

Paint = Callable[[Chest, PaintRequest, np.random.Generator], PaintedImage]
PAINTERS: dict[str, Paint] = {
    "opacity": airspace.paint,
    "consolidation": airspace.paint,
    "nodule": airspace.paint,
    "edema": edema.paint,
    "atelectasis": atelectasis.paint,
    "effusion": effusion.paint,
    "pneumothorax": pneumothorax.paint,
    "cardiomegaly": cardiomegaly.paint,
}
IN_BOX = ("atelectasis", "effusion")  # these painters may change the whole box, other painters the lung and its rim


def region_of(painter: str, chest: Chest, request: PaintRequest) -> np.ndarray:
    """Return the region that a painter may change, bool (H, W). Outside this region, the image stays the same."""
    shape = chest.image.shape
    mask = np.zeros(shape, bool)
    if painter == "cardiomegaly":  # all columns of the thorax
        mask[:, bounding_box(chest.right)[0] : bounding_box(chest.left)[2]] = True
        return mask
    for place in request.places:
        x1, y1, x2, y2 = clip_boxes(np.array(place.box), *shape)[0]
        near = cv2.distanceTransform((~chest.lung(place.side)).astype(np.uint8), cv2.DIST_L2, 5) <= RIM
        mask[y1:y2, x1:x2] |= True if painter in IN_BOX else near[y1:y2, x1:x2]
    return mask
