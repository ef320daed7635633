"""Per-finding result of a film: the pipeline's own masks, from the marked lesion as if a report affirmed it.

One finding for each side of the chest on which a lesion is marked: an opacity in those of the side's four zones that
hold at least ``NAMED`` of it, by the zones of the original image. Boxes come from the lite detector, zones from the
lite anatomy engine on the edited image, the conditions and thresholds are the pipeline's own defaults.
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
"""Share of the lesion on a side that a zone must hold to be named."""
SMALLEST = 64
"""Pixels of a lesion on a side that make a finding, as many as a component of a mask has at least."""


class Finding(NamedTuple):
    """A finding's mask bool (512, 512), None without one, its truth and the whole lung of its side."""

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
    """Return the lesion on each side, parted midway between the lungs' centres."""
    centres = [np.nonzero(film.organs[lung])[1].mean() for lung in LUNGS if film.organs[lung].any()]
    middle = sum(centres) / 2 if len(centres) == 2 else film.lesion.shape[1] / 2
    right = np.arange(film.lesion.shape[1])[None] < middle
    return {"right": film.lesion & right, "left": film.lesion & ~right}


def detected(film: Film) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes of a film float64 (N, 4) that the masks use, and their confidences (N,)."""
    _, detector, excluded, _, _ = _engines()
    found = detector.detect(film.image, film.name, np.eye(2, 3))
    used = [name not in excluded for name in found.class_names]
    return found.boxes[used], found.confidence[used]


def findings(film: Film, edited: np.ndarray, anomaly: np.ndarray) -> list[Finding]:
    """Return the findings of a film with the masks that an edited frame and an anomaly map give them."""
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
