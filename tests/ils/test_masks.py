"""The masks stage on constructed chests: thresholds, and which boxes and components make a mask."""

from fractions import Fraction

import numpy as np
import pytest

from cxr.base.vocabulary import ANATOMY_LABELS, LESIONS
from cxr.ils.masks import algorithm, thresholds
from cxr.ils.masks.zones import Zones
from cxr.workflow.settings import Settings
from masks_chest import R_BASE, SIZE, TAUS, blob, study
from masks_shard import said

# --- thresholds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "level"), [(0.10, 26), (0.05, 13), (0.01, 3), (0.005, 2), (0.0, 0), (1.0, 255), (0.2, 51), (0.6, 153)]
)
def test_levels_of_the_specification(share, level):
    assert thresholds.grey_level(share) == level


def test_halves_are_those_of_table_8():
    sets = {name: chosen.as_dict() for name, chosen in Settings().thresholds.sets.items()}
    halves = {
        part: {name: float(thresholds.exact_fraction(share) / 2) for name, share in values.items()}
        for part, values in sets["default"].items()
    }
    assert sets["half"] == halves


def test_only_edema_has_thresholds_of_its_own():
    chosen = thresholds.ThresholdSet.from_settings(Settings().thresholds.sets["default"].as_dict())
    assert [chosen.for_target(lesion).level for lesion in LESIONS] == [26, 26, 26, 26, 26, 3, 26]
    assert chosen.smallest_level == 3


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.7, 1 / 3, 0.1 + 0.2])
def test_ratios_are_compared_without_rounding(share):
    """Every part of every whole up to 60, against fractions; times 4096 the products of the last two exceed 64 bits."""
    part, whole = np.mgrid[:61, :61]
    expected = [
        [w > 0 and Fraction(int(p), int(w)) >= thresholds.exact_fraction(share) for w in range(61)] for p in range(61)
    ]
    assert thresholds.is_at_least(part, whole, thresholds.exact_fraction(share)).tolist() == expected
    assert thresholds.is_at_least(part * 4096, whole * 4096, thresholds.exact_fraction(share)).tolist() == expected
    huge = np.array([2**18])
    assert not thresholds.is_at_least(huge - 1, huge, Fraction(1)).any()


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


def test_opening_takes_what_holds_no_cross_and_erodes_from_the_border():
    binary = np.zeros((6, 8), np.uint8)
    binary[0:3, 0:3] = 1  # holds a cross
    binary[5, 5:8] = 1  # one row on the border: outside is background
    binary[1, 6] = 1
    assert np.argwhere(algorithm.apply_opening(binary)).tolist() == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]


@pytest.mark.parametrize("side", [8, 16, 510, 512])
def test_components_of_the_most_crowded_map(side):
    """One pixel in every second row and column, as many components as there can be: 65536 in a whole frame."""
    binary = np.zeros((side, side), np.uint8)
    binary[::2, ::2] = 1
    found = algorithm.find_components(binary)
    assert sorted(found.labels[::2, ::2].ravel().tolist()) == list(range(1, side * side // 4 + 1))
    assert not found.labels[1::2].any()
    assert not found.labels[:, 1::2].any()


def test_components_met_by_a_box():
    binary = np.zeros((6, 9), np.uint8)
    binary[1:3, 0:2] = binary[3, 2] = 1  # 8-connected: five pixels
    binary[0:6, 6] = 1
    binary[5, 8] = 1
    found = algorithm.find_components(binary)
    left, bar, corner = (int(found.labels[place]) for place in ((1, 0), (0, 6), (5, 8)))
    assert [found.extent(label) for label in (left, bar, corner)] == [
        (5, (0, 1, 3, 4)),
        (6, (6, 0, 7, 6)),
        (1, (8, 5, 9, 6)),
    ]
    for box, met in (
        ((0, 0, 9, 6), {left, bar, corner}),
        ((2, 3, 3, 4), {left}),
        ((2, 0, 6, 3), set()),
        ((5, 5, 9, 6), {bar, corner}),
        ((6, 2, 6, 5), set()),  # without area
        ((8, 0, 9, 5), set()),
    ):
        assert found.find_touching(np.array(box)) == sorted(met)


@pytest.mark.parametrize(("height", "width"), [(16, 32), (16, 64)])
def test_pixels_shared_with_each_label(height, width):
    """Rows of half a word and of a whole one; a mask without a pixel, and one on the last row."""
    random = np.random.default_rng(width)
    masks = random.random((len(ANATOMY_LABELS), height, width)) < 0.5
    zones = Zones(np.packbits(masks, axis=-1), ANATOMY_LABELS)
    for rows in (slice(0, 0), slice(3, 9), slice(height - 1, height)):
        mask = np.zeros((height, width), bool)
        mask[rows] = random.random((rows.stop - rows.start, width)) < 0.7
        held = zones.count_pixels_by_label(np.packbits(mask, axis=-1))
        assert held == {label: int((mask & one).sum()) for label, one in zip(ANATOMY_LABELS, masks, strict=True)}


def test_each_condition_fails_alone_and_a_tie_holds(segment):
    """One zone of 336 px; every threshold is met exactly, then missed by the next decimal."""
    x1, y1, x2, _ = box = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1, x2, y1 + 5)], boxes=[box])
    exact = {"ano": 0.2, "anatomy": 0.476190476190476, "conf": 0.9, "signal": 0.475, "size": 0.119047619047619}
    made["anomaly"][made["anomaly"] > 0] = 51  # 51 / 255 = 0.2

    def verdict(**taus):
        return segment(made, taus={"general": exact | taus, "edema": TAUS}).findings[0]["box_verdicts"]

    # 160 / 336 and 160 / 1344 cut to 15 digits; 80 px of signal less four corners opened away: 76 of 160
    assert verdict() == [0]
    assert verdict(anatomy=0.47619047619047622) == [1]
    assert verdict(conf=0.91) == [2]
    assert verdict(signal=0.4750001) == [4]
    assert verdict(size=0.11904761904761905) == [8]
    assert verdict(ano=0.2001) == [4]
    assert verdict(ano=0.2001, conf=1.0) == [6]


def test_c3_counts_the_opened_map(segment):
    x1, y1, x2, _ = box = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1, x2, y1 + 5)], boxes=[box])
    taus = {"general": TAUS | {"signal": 0.48}, "edema": TAUS}  # 80 of 160 before opening, 76 after
    assert segment(made, taus=taus).findings[0]["reason"] == "no_productive_box"


def test_a_component_is_taken_whole_also_outside_its_box(segment):
    x1, y1, x2, y2 = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1 - 20, x2, y2)], boxes=[(x1, y1, x2, y2)])
    row = segment(made).findings[0]
    assert row["area"] == 30 * 16 - 4
    assert row["share_outside"] == pytest.approx((18 * 16 - 2) / 476)


def test_boxes_outside_the_frame_without_area_or_with_nan(segment):
    box = blob(R_BASE)
    wild = [(-50, -50, -3, -3), (20, 20, 20, 40), (np.nan, 0, 9, 9), (500, 500, 900, 900), box]
    row = segment(study("s1", [said(labels=[R_BASE])], [box], boxes=wild)).findings[0]
    assert [bool(v & 16) for v in row["box_verdicts"]] == [True, True, True, True, False]
    assert (row["productive_boxes"], row["area"]) == (1, 156)


def test_a_box_of_an_excluded_class_is_no_box(segment):
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)], kept=[False])
    row = segment(made).findings[0]
    assert (row["reason"], row["box_verdicts"]) == ("no_productive_box", [])


@pytest.mark.parametrize(
    ("labels", "blobs", "rules", "reason"),
    [
        ([], [R_BASE], {}, "no_labels"),
        ([R_BASE], [], {}, "no_productive_box"),
        ([R_BASE], [R_BASE], {"min_component_px": 157}, "empty_after_refine"),
        ([R_BASE], [R_BASE], {"ground_min_px": 157}, "no_grounded_label"),
        ([R_BASE], [R_BASE], {"min_component_px": 156, "ground_min_px": 156}, None),
    ],
)
def test_every_finding_without_a_grounded_mask_has_a_reason(segment, labels, blobs, rules, reason):
    row = segment(study("s1", [said(labels=labels)], [blob(zone) for zone in blobs]), **rules).findings[0]
    assert row["reason"] == reason
    assert (row["mask_id"] is None) == (reason in ("no_labels", "no_productive_box", "empty_after_refine"))


def test_labels_with_empty_masks_have_no_anatomy(segment):
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)])
    made["zones"][R_BASE] = np.zeros((SIZE, SIZE), bool)
    result = segment(made)
    assert result.findings[0]["reason"] == "no_anatomy"
    assert {"right lung", R_BASE} <= set(result.studies[0]["blocked"])
