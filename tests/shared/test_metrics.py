"""Metrics: each is checked by hand or against sets of pixels, and each is defined in one place."""

import ast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp
from scipy.stats import binomtest

from conftest import ROOT, every
from cxr.base.hdf5 import pack
from cxr.metrics import labels
from cxr.metrics import masks as metrics
from cxr.metrics.intervals import wilson_interval
from cxr.metrics.matching import match_boxes, score_detections
from cxr.metrics.raters import measure_agreement

# Masks


def test_the_epsilon_is_added_to_the_union_in_single_precision():
    assert metrics.lisa_iou(np.array([91, 0, 0]), np.array([91, 5, 0])).tolist() == [
        float(np.float32(91) / np.float32(91.00001)),
        0.0,
        1.0,
    ]


@given(hnp.arrays(bool, (2, 8, 16)))
def test_overlap_of_packed_masks_is_that_of_pixels(masks):
    one, other = masks
    assert metrics.overlap_packed(pack(one), pack(other)) == ((one & other).sum(), (one | other).sum())


@given(hnp.arrays(bool, (2, 6, 8)))
def test_iou_and_dice_are_those_of_sets(masks):
    one, other = ({tuple(pixel) for pixel in np.argwhere(mask)} for mask in masks)
    both = metrics.overlap(*masks)
    assert both == metrics.overlap(*map(torch.from_numpy, masks)) == metrics.overlap_packed(*map(pack, masks))
    assert metrics.iou(*both, empty=0.5) == (len(one & other) / len(one | other) if one | other else 0.5)
    assert metrics.dice(*both, empty=0.5) == (2 * len(one & other) / (len(one) + len(other)) if one | other else 0.5)


def test_two_empty_masks_have_no_overlap_unless_told():
    assert (metrics.iou(0, 0), metrics.dice(0, 0)) == (0.0, 0.0)
    assert (metrics.iou(0, 0, empty=1.0), metrics.dice(0, 0, empty=1.0)) == (1.0, 1.0)


HOMES = {
    "iou": "metrics/masks.py", "lisa_iou": "metrics/masks.py", "giou": "metrics/masks.py", "ciou": "metrics/masks.py",
    "box_iou": "geometry/boxes.py", "union_iou": "geometry/unions.py",
    "dice": "metrics/masks.py",
}  # fmt: skip
OTHERS = {
    "ils/masks/algorithm.py": {"compute_box_iou"},  # of boxes and a mask, as exact fractions: Algorithm 1's conditions
    "segmentation/losses.py": {"dice_loss"},  # a loss of logits
    "medground/scoring/scores.py": {"matched_iou"},  # the mean of box_iou over matched boxes
    "medground/verification/anatomy.py": {"organ_iou"},  # paired_iou of a box and an organ's
    "vlm/reading.py": {"answer_iou"},  # union_iou of the boxes that a text holds
}


def test_each_overlap_is_defined_in_one_place():
    """The IoU of two masks is defined only in the module that its name suggests."""
    found: dict[str, set[str]] = {}
    package = ROOT / "scripts/cxr"
    for path in sorted(package.rglob("*.py")):
        defined = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        names = {name for name in defined if {"iou", "giou", "ciou", "dice"} & set(name.strip("_").split("_"))}
        if names:
            found[path.relative_to(package).as_posix()] = names
    assert {path for path in found if path not in OTHERS} == set(HOMES.values())
    assert all(found[home] >= {name} for name, home in HOMES.items())
    assert {path: found[path] for path in OTHERS} == OTHERS


# Boxes


def test_matching_gives_each_true_box_one_hit():
    truth = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10]])
    boxes = np.array([[0.0, 0, 10, 9], [0, 0, 10, 10], [20, 0, 30, 5], [50, 50, 60, 60]])
    hit, found = match_boxes(boxes, truth, 0.5)
    assert hit.tolist() == [True, False, True, False]
    assert found.tolist() == [True, True]
    images = [(boxes, np.array([0.9, 0.5, 0.4, 0.1]), truth), (boxes[:1], np.array([0.9]), np.zeros((0, 4)))]
    assert score_detections(images, iou=0.5, confidence=0.4) == {
        "images": 2,
        "boxes": 2,
        "recall": 1.0,
        "precision": 0.5,
        "false_per_image": 1.0,
    }
    assert score_detections(images, iou=0.51, confidence=0.5)["recall"] == 0.5


# Labels


def test_precision_recall_and_f1_by_hand():
    counts = np.array([[3, 1, 2], [0, 0, 0], [0, 2, 0]])
    np.testing.assert_array_equal(labels.precision(counts), [0.75, np.nan, 0.0])
    np.testing.assert_array_equal(labels.recall(counts), [0.6, np.nan, np.nan])
    np.testing.assert_array_equal(labels.f1(counts), [6 / 9, np.nan, 0.0])
    assert labels.macro_f1(counts) == pytest.approx(3 / 9)
    assert np.isnan(labels.macro_f1(np.zeros((2, 3))))


# Raters


def of_counts(*groups: tuple[int, int]) -> np.ndarray:
    return np.repeat([yes for yes, _ in groups], [units for _, units in groups])


def agreed(yes: np.ndarray, raters: int, **more: object):
    how = {"replicates": 0, "level": 0.95, "seed": 1} | more
    return measure_agreement(yes, raters, np.arange(len(yes)), **how)


def test_agreement_of_two_raters_by_hand():
    # 118 both yes, 5 + 2 split, none both no: pa = 118/125; yeses 243 of 250, so p = .972
    found = agreed(of_counts((2, 118), (1, 7)), 2)
    p = 243 / 250
    chance = 2 * p * (1 - p)
    assert (found.units, found.unanimous) == (125, 118)
    assert found.percent == pytest.approx(0.944)
    assert found.ac1 == pytest.approx((0.944 - chance) / (1 - chance))
    assert found.ac1 == pytest.approx(0.9408, abs=5e-5)
    assert found.kappa == pytest.approx(-0.0288, abs=5e-5)


def test_agreement_of_four_raters_by_hand():
    # units with 4, 3, 2 yeses: pairs that agree 6, 3, 2 of 6; p = 9/12; Fleiss' chance 10/16, Gwet's 6/16
    found = agreed(np.array([4, 3, 2]), 4)
    assert found.percent == pytest.approx(11 / 18)
    assert found.kappa == pytest.approx((11 / 18 - 10 / 16) / (6 / 16))
    assert found.ac1 == pytest.approx((11 / 18 - 6 / 16) / (10 / 16))
    assert found.unanimous == 1


def test_agreement_where_there_is_none_to_speak_of():
    assert agreed(np.array([1, 0]), 1).percent is None
    assert agreed(np.array([], int), 4).ac1 is None
    same = agreed(np.array([4, 4]), 4, replicates=50)
    assert (same.percent, same.kappa, same.ac1) == (1, None, 1)
    assert (same.ac1_low, same.ac1_high) == (1, 1)


def test_intervals_of_agreement_draw_patients():
    yes = of_counts((4, 60), (2, 40))
    alone = agreed(yes, 4, replicates=2000)[-2:]
    # the same units, each kind in one of two patients: the bootstrap draws patients, so the interval is far wider
    two = measure_agreement(yes, 4, np.array(["p"] * 60 + ["q"] * 40), replicates=2000, level=0.95, seed=1)[-2:]
    assert alone[0] < agreed(yes, 4).ac1 < alone[1]
    assert two[1] == 1
    assert two[0] == pytest.approx((1 / 3 - 1 / 2) / (1 / 2))
    assert two[0] < alone[0]


# Proportions


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:857, Table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_intervals_are_the_published_ones(part, whole, low, high):
    found = wilson_interval(part, whole, 0.95)
    assert found.rate == part / whole
    assert found[1:] == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(whole - part, whole, 0.95) == pytest.approx((1 - found.rate, 1 - found.high, 1 - found.low))


def test_the_ends_of_nothing_none_and_all_are_exact():
    assert wilson_interval(0, 0, 0.95) is None
    assert wilson_interval(0, 7, 0.95).low == 0.0
    assert wilson_interval(7, 7, 0.95).high == 1.0


@pytest.mark.parametrize("level", every(4, [0.95, 0.5, 0.9, 0.99]))
def test_wilsons_intervals_are_scipys_to_the_digit_that_a_table_prints(level):
    for whole in (*range(1, 60), 263, 999):
        for part in range(1, whole):
            theirs = binomtest(part, whole).proportion_ci(level, method="wilson")
            low, high = wilson_interval(part, whole, level)[1:]
            printed = [round(100 * end, 3) for end in (low, high)]
            assert printed == [round(100 * float(end), 3) for end in theirs]
