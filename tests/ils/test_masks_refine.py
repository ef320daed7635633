"""The masks stage on constructed chests: refinement, grounding and names."""

import numpy as np
import pytest

from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.ils.masks import algorithm, thresholds
from cxr.ils.masks.zones import name_locations
from masks_chest import EFFUSION, L_BASE, R_BASE, TAUS, blob, chest, study
from masks_shard import said

# --- refinement ----------------------------------------------------------------------------------------------------


def test_growth_follows_the_ungrown_mean_step_by_step():
    """A row of greys: growth reaches what is within 10 of the first mean, and no further than its steps."""
    image = np.array([[100, 100, 110, 110, 111, 110]], np.uint8)
    start = np.array([[1, 1, 0, 0, 0, 0]], np.uint8)
    lungs = np.ones_like(start)
    assert algorithm.grow_component(start, image, lungs, 10, 5).tolist() == [[1, 1, 1, 1, 0, 0]]
    assert algorithm.grow_component(start, image, lungs, 10, 1).tolist() == [[1, 1, 1, 0, 0, 0]]
    assert algorithm.grow_component(start, image, lungs, 11, 5).tolist() == [[1, 1, 1, 1, 1, 1]]
    assert (
        algorithm.grow_component(start, image, np.array([[0, 0, 0, 1, 1, 1]], np.uint8), 11, 5).tolist()
        == start.tolist()
    )


@pytest.mark.parametrize(("share", "rows"), [(0.0, 0), (0.15, 8), (0.25, 14), (1.0, 56)])
def test_the_lowest_part_is_measured_in_height(share, rows):
    lung = chest()["right lung"].astype(np.uint8)
    part = algorithm.crop_to_base(lung, thresholds.exact_fraction(share))
    assert part.sum() == rows * 24
    assert not rows or part[60 - rows :].sum() == part.sum()


@pytest.mark.parametrize(
    ("more", "filled"),
    [
        ({}, True),
        ({"entity": "fissural effusion"}, False),
        ({"location": ["minor fissure"]}, False),
        ({"location": ["right apex"]}, False),
        ({"lesion": "consolidation"}, False),
        ({"predicted_lesion_type": "atelectasis"}, False),
    ],
)
def test_an_effusion_is_filled_down_to_its_base(segment, more, filled):
    result = segment(study("s1", [said(labels=[R_BASE], **(EFFUSION | more))], [blob(R_BASE, rows=4, down=0)]))
    mask = result.mask(result.findings[0])
    lowest = np.zeros_like(mask)
    lowest[48:62, 3:27] = True  # 0.25 of 56 rows of the lung on the image, which lies lower than its zones
    seen = 4 * 16 - 4
    assert (mask & lowest).sum() == (14 * 24 if filled else 16 * 2 - 2)
    assert (mask & ~lowest).sum() == seen - (16 * 2 - 2)


def test_an_effusion_fills_only_the_side_it_is_grounded_on(segment):
    result = segment(study("s1", [said(labels=[R_BASE, L_BASE], **EFFUSION)], [blob(R_BASE)]))
    row = result.findings[0]
    assert row["grounded"] == [R_BASE]
    assert not result.mask(row)[:, 32:].any()


def across() -> tuple[int, int, int, int]:
    """A band from the right base over the middle into the left one."""
    return 10, 50, 50, 56


@pytest.mark.parametrize(("labels", "columns"), [([R_BASE], (10, 37)), ([R_BASE, L_BASE], (10, 50))])
def test_a_component_is_cut_off_in_the_lung_without_a_productive_box(segment, labels, columns):
    made = study("s1", [said(labels=labels)], [across()], boxes=[(8, 48, 40, 60)])
    result = segment(made)
    mask = result.mask(result.findings[0])
    assert (np.flatnonzero(mask.any(axis=0))[[0, -1]] + [0, 1]).tolist() == list(columns)


def test_a_component_wholly_in_the_other_lung_makes_no_box_productive(segment):
    box = (20, 46, 50, 60)  # reaches the left base
    made = study("s1", [said(labels=[R_BASE])], [blob(L_BASE)], boxes=[box])
    assert segment(made).findings[0]["reason"] == "empty_after_refine"


def test_a_side_closes_when_its_only_box_is_left_with_nothing(segment):
    """tau_anatomy 0 lets in a box that meets no label: once the right base has no productive box, it goes, too."""
    upper, wide = blob("right upper zone lung"), (20, 46, 50, 60)
    made = study("s1", [said(labels=[R_BASE])], [upper, blob(L_BASE)], boxes=[upper, wide])
    row = segment(made, taus={"general": TAUS | {"anatomy": 0.0}, "edema": TAUS}).findings[0]
    assert (row["reason"], row["box_verdicts"]) == ("empty_after_refine", [32, 32])


# --- grounding and names -------------------------------------------------------------------------------------------


def test_a_label_must_hold_its_share_of_the_mask(segment):
    """Left base: 8 x 8 less four corners, 60 of 216 pixels."""
    blobs = [blob(R_BASE), blob(L_BASE, rows=8, columns=8)]
    made = study("s1", [said(labels=[R_BASE, L_BASE])], blobs)
    assert segment(made, ground_min_share=0.277).findings[0]["grounded"] == [R_BASE, L_BASE]
    assert segment(made, ground_min_share=0.278).findings[0]["grounded"] == [R_BASE]


def test_a_lobe_is_named_by_the_zones_that_hold_enough(segment):
    lobe = "lung lower lobe left"
    x1, y1, x2, y2 = blob(L_BASE)
    # rows 44 and 45 are mid zone, the rest base: (16 - 2 + 16) and (16 * 12 - 2) of 220 pixels
    made = study("s1", [said(labels=[lobe])], [(x1, y1 - 4, x2, y2)])
    assert segment(made, name_min_share=0.13).findings[0]["locations"] == ["left mid zone lung", L_BASE]
    row = segment(made, name_min_share=0.14).findings[0]
    assert (row["locations"], row["grounded"]) == ([L_BASE], [lobe])
    assert row["reported_locations"] == ["left mid zone lung", L_BASE]


def test_names_are_in_the_order_of_table_9_without_zones_beside_their_lung():
    held = dict.fromkeys(VALID_LOCATIONS, 50)
    labels = ["left lung base", "left lung", "right mid zone lung", "lung upper lobe left", "right apical zone lung"]
    assert name_locations(labels, held, 100, min_share=0.1) == [
        "left lung",
        "right apical zone lung",
        "right mid zone lung",
    ]


def test_a_lobe_is_never_named_by_an_ungrounded_label(segment):
    """The mid zone is reported and holds too little: the upper lobe that reaches into it must not name it."""
    mid, lobe = "left mid zone lung", "lung upper lobe left"
    blobs = [blob("left upper zone lung"), blob(mid, rows=5, columns=8)]
    made = study("s1", [said(labels=[mid, lobe])], blobs, boxes=[blobs[0]])
    made["anomaly"][30:34, 40:48] = 60  # joins both blobs
    result = segment(made, ground_min_px=60)
    row = result.findings[0]
    assert (result.mask(row) & made["zones"][mid]).sum() == 7 * 8 - 2
    assert row["grounded"] == [lobe]
    assert row["locations"] == ["left upper zone lung"]
