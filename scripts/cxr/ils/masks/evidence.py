"""Find the locations of an image where a negative instruction may or must not deny a lesion."""

from collections.abc import Iterable, Sequence

import numpy as np

from cxr.base.vocabulary import LESIONS, LOBES, VALID_LOCATIONS, in_table_order, kinds_under
from cxr.geometry.affine import points_to_original
from cxr.ils.masks.findings import CARDIOMEGALY, OPACITY, Finding
from cxr.ils.masks.outcomes import Outcome
from cxr.ils.masks.settings import STRICT, Rules
from cxr.ils.masks.zones import Zones, list_related_by_name, lung_of, view_as_words


def find_reported_and_blocked(finding: Finding, zones: Zones, rules: Rules) -> tuple[set[str], set[str]]:
    """Return (reported, blocked): the valid locations where a report places a finding, and others where it may lie.

    A location is reported if it shares a pixel with a zone that the report names for the finding. If ``blocking`` is
    strict, the lung of a reported zone and the zones of a reported lung count as reported too. Blocked are the
    locations ``finding.blocks`` and, for a zone with an empty mask, the zone itself, its lung and the zones within it.
    """
    reported: set[str] = set()
    blocked = set(finding.blocks)
    for label in finding.reported:
        met = zones.find_overlapping_label(label)
        reported |= met
        if rules.blocking == STRICT:
            if not zones.is_empty(label):
                reported |= {lung_of(label)} if label in LOBES else list_related_by_name(label)
            else:
                blocked |= list_related_by_name(label)
    return reported, blocked


def compute_location_evidence(
    outcomes: Sequence[Outcome], blocking: Iterable[Finding], related: Sequence[str], zones: Zones, rules: Rules
) -> dict:
    """Return one image's values for those columns of the studies table (``make_masks.STUDIES``) that list locations.

    ``outcomes``: masks of the positive findings in the report section that is used; ``blocking``: positive findings of
    the other section, which only forbid negative pairs; ``related``: lesion types to which a term in the report hints.
    """
    reported, blocked, occupied = set(), set(), set()
    standing: dict[str, set[str]] = {}
    masks = [(outcome.finding, outcome.mask) for outcome in outcomes]
    for finding, mask in [*masks, *((finding, None) for finding in blocking)]:
        meets, blocks = find_reported_and_blocked(finding, zones, rules)
        holds = zones.find_overlapping(mask) if mask is not None and not finding.heart else frozenset()
        reported |= meets
        blocked |= blocks
        occupied |= holds
        for kind in finding.kinds:
            places = set() if kind == CARDIOMEGALY else meets | blocks | holds
            standing.setdefault(kind, set()).update(places)
    possible = zones.visible if rules.blocking == STRICT else frozenset(VALID_LOCATIONS)
    empty = possible - reported - blocked - occupied
    lesion_blocked = []
    for lesion in LESIONS:
        kinds = (lesion, *kinds_under(lesion)) if rules.kinds == STRICT else (lesion,)
        stands = [kind for kind in kinds if kind in standing]
        locations = in_table_order(place for kind in stands for place in standing[kind])
        is_blocked = bool(stands) or any(kind in related for kind in kinds)
        is_blocked = is_blocked or (lesion == OPACITY and len(empty) < len(VALID_LOCATIONS))
        row = {"lesion": lesion, "locations": locations, "anywhere": bool(stands), "global_blocked": is_blocked}
        lesion_blocked.append(row)
    location_sets = {"reported": reported, "blocked": blocked, "occupied": occupied, "empty": empty}
    located = [(lesion, in_table_order(standing[lesion])) for lesion in LESIONS if lesion in standing]
    return {name: in_table_order(locations) for name, locations in location_sets.items()} | {
        "standing": [{"lesion": lesion, "locations": locations} for lesion, locations in located],
        "related": list(related),
        "lesion_blocked": lesion_blocked,
    }


def compute_cardiothoracic_ratio(heart: np.ndarray, lungs: np.ndarray, to_original: np.ndarray) -> float | None:
    """Return the heart's width divided by that of both lungs between their outer edges; None if a mask is empty.

    ``heart`` and ``lungs``: frame masks, uint8 packed (H, W / 8); ``to_original``: affine (2, 3) from the frame to
    original pixels, in which both widths are measured.
    """
    widths = []
    for packed in (heart, lungs):
        columns = np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(view_as_words(packed), axis=0).view(np.uint8)))
        if not len(columns):
            return None
        edges = points_to_original(np.array([[columns[0], 0.0], [columns[-1] + 1.0, 0.0]]), to_original)
        widths.append(float(np.abs(edges[1] - edges[0]).sum()))
    return widths[0] / widths[1] if all(widths) else None
