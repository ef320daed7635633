"""The masks that the pipeline makes for the findings of an X-ray, as if a report stated the marked lesion.

Each side of the chest with a marked lesion has a finding: an opacity in the zones that contain at least the fraction
``NAMED`` of the lesion, by the original image. Boxes are from the detector ``lite``, zones for the mask from the
anatomy engine ``lite`` on the edited image. Conditions and thresholds are the pipeline's defaults.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from films import Film

from cxr.base.hdf5 import pack
from cxr.base.vocabulary import ANATOMY_LABELS, LUNGS, SIDES, ZONE_LABELS, zones_of
from cxr.ils.masks.segmenter import LesionSegmenter
from cxr.ils.masks.settings import Rules
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.zones import Zones
from cxr.imaging.anatomy import lite as anatomy
from cxr.imaging.boxes import lite as boxes
from cxr.workflow.settings import Settings

NAMED = 0.10
"""Minimum fraction of a side's lesion that a zone must contain to be a location of the finding."""
SMALLEST = 64
"""Minimum number of lesion pixels on a side that make a finding. A mask's components have the same minimum."""


class Finding(NamedTuple):
    """A finding: its mask, bool (512, 512), or None, the true lesion, and the whole lung of its side."""

    mask: np.ndarray | None
    truth: np.ndarray
    lung: np.ndarray


@cache
def _engines() -> tuple:
    own = Settings()
    thresholds = own.thresholds.sets["default"].as_dict()
    return (
        anatomy.load(),
        boxes.load(own.boxes),
        tuple(own.boxes.excluded_classes),
        Rules.from_job(own.dataset.as_dict()),
        ThresholdSet.from_settings(thresholds),
    )


def sides(film: Film) -> dict[str, np.ndarray]:
    """Return {side: lesion on this side}. The sides meet halfway between the centres of the lungs."""
    centres = [np.nonzero(film.organs[lung])[1].mean() for lung in LUNGS if film.organs[lung].any()]
    middle = sum(centres) / 2 if len(centres) == 2 else film.lesion.shape[1] / 2
    right = np.arange(film.lesion.shape[1])[None] < middle
    return {"right": film.lesion & right, "left": film.lesion & ~right}


def detected(film: Film) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes of an X-ray that the masks stage uses, float64 (N, 4), and their confidences (N,)."""
    _, detector, excluded, _, _ = _engines()
    found = detector.detect(film.image, film.name, np.eye(2, 3))
    used = [name not in excluded for name in found.class_names]
    return found.boxes[used], found.confidence[used]


def findings(film: Film, edited: np.ndarray, anomaly: np.ndarray) -> list[Finding]:
    """Return the findings of an X-ray, with the masks that result from an edited frame and an anomaly map."""
    zones, _, _, rules, thresholds = _engines()
    corners, confidence = detected(film)
    before = dict(zip(ANATOMY_LABELS, zones.segment(film.image), strict=True))
    after = zones.segment(edited)[: len(ZONE_LABELS)]
    segmenter = LesionSegmenter(
        anomaly=anomaly,
        image=lambda: film.image,
        zones=Zones(pack(after), ZONE_LABELS),
        lungs={label: pack(film.organs[label]) for label in LUNGS},
        boxes=corners,
        confidence=confidence,
        rules=rules,
        smallest_level=thresholds.smallest_level,
    )
    found = []
    for side, truth in sides(film).items():
        held = {zone: np.count_nonzero(truth & before[zone]) for zone in zones_of(side)}
        named = tuple(zone for zone, pixels in held.items() if pixels and pixels >= NAMED * sum(held.values()))
        if np.count_nonzero(truth) < SMALLEST or not named:
            continue
        lesion = segmenter.segment(named, thresholds.general, fill=False)
        grounded = lesion.mask is not None and lesion.grounded
        mask = np.unpackbits(lesion.mask, axis=-1).astype(bool) if grounded else None
        found.append(Finding(mask, truth, film.organs[LUNGS[SIDES.index(side)]]))
    return found
