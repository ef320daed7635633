"""The masks stage on constructed chests: certainty, hedges, hearts, and what negatives need to know."""

import numpy as np
import pytest

from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.ils.masks.findings import make_finding
from cxr.ils.masks.settings import Rules
from masks_chest import HEART, L_BASE, R_BASE, SIZE, blob, study
from masks_shard import RULES, said

# --- certainty, candidates, hedges -----------------------------------------------------------------------------------


def test_several_candidates(segment):
    """'Right basal opacity, atelectasis or pneumonia': target opacity, no twin, and neither may be denied."""
    told = said(labels=[R_BASE], certainty="tentative", candidates=["atelectasis", "pneumonia"])
    result = segment(study("s1", [told], [blob(R_BASE)]))
    unit = result.basics()[0]
    assert (unit["target"], unit["inference"]) == ("opacity", False)
    assert [row["lesion"] for row in result.studies[0]["standing"]] == ["pneumonia", "atelectasis", "opacity"]
    own = said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative", candidates=["pneumonia", "edema"])
    unit = segment(study("s1", [own], [blob(R_BASE)])).basics()[0]
    assert (unit["target"], unit["inference"], unit["inference_dropped"]) == (
        "atelectasis",
        False,
        "several_candidates",
    )


@pytest.mark.parametrize(
    ("own", "predicted", "candidates", "target", "reason"),
    [
        ("opacity", "pneumonia", ["pneumonia"], "pneumonia", None),
        ("opacity", None, [], "opacity", None),
        (None, "atelectasis", ["atelectasis"], "atelectasis", None),
        (None, None, [], None, "no_lesion"),
        ("opacity", "overlap", ["overlap"], None, "predicted_other"),
        ("opacity", None, ["scar", "nipple shadow"], None, "predicted_other"),
        ("opacity", "infection", ["infection"], "opacity", None),
        ("opacity", None, ["scar", "infection"], "opacity", None),
        ("opacity", None, ["scar", "atelectasis"], "opacity", None),
        ("opacity", ["atelectasis", "pneumonia"], None, "opacity", None),
    ],
)
def test_targets(own, predicted, candidates, target, reason):
    made = make_finding(0, said(lesion=own, predicted_lesion_type=predicted, candidates=candidates), Rules(**RULES))
    assert (made.target, made.reason) == (target, reason)


def test_a_tentative_finding_is_called_an_opacity_and_prevents_its_global(segment):
    told = said("edema", [R_BASE], lesion="edema", certainty="tentative")
    made = study("s1", [told], [blob(R_BASE)])
    assert segment(made).made() == [("basic", "opacity", [R_BASE])]


def test_a_global_needs_every_label_grounded(segment):
    made = study("s1", [said("edema", [R_BASE, L_BASE], lesion="edema")], [blob(R_BASE)])
    assert segment(made).made() == [("basic", "edema", [R_BASE])]


def test_weak_hedges_only_block_if_asked(segment):
    told = said("pneumonia", [R_BASE], lesion="pneumonia", certainty="tentative", hedge="weak")
    made = study("s1", [told], [blob(R_BASE)])
    assert segment(made).made() == [("basic", "opacity", [R_BASE])]
    blocked = segment(made, weak_hedges="block_only")
    assert blocked.units == []
    assert blocked.findings[0]["reason"] == "weak_hedge"
    assert R_BASE not in blocked.studies[0]["empty"]
    assert blocked.studies[0]["lesion_blocked"][1]["anywhere"]


@pytest.mark.parametrize(
    ("more", "positive"),
    [
        ({}, True),
        ({"certainty": "tentative", "hedge": "strong"}, True),
        ({"certainty": "tentative", "hedge": "weak"}, False),
        ({"entity": "borderline heart", "related": "cardiomegaly"}, False),
        ({"presence": "negative"}, False),
    ],
)
def test_cardiomegaly(segment, more, positive):
    result = segment(study("s1", [said(**(HEART | more))], []))
    assert result.made() == ([("global", "cardiomegaly", ["heart"])] if positive else [])
    stands = more.get("presence") != "negative"
    assert result.studies[0]["lesion_blocked"][0]["anywhere"] == stands
    assert result.studies[0]["empty"] == list(VALID_LOCATIONS)


def test_cardiomegaly_without_a_heart_mask(segment):
    result = segment(study("s1", [said(**HEART)], [], heart=np.zeros((SIZE, SIZE), bool)))
    assert result.units == []
    assert result.findings[0]["reason"] == "no_heart"
    assert result.studies[0]["ctr"] is None


# --- what negatives need ---------------------------------------------------------------------------------------------


def test_occupied_and_empty_locations(segment):
    """A nodule in the left mid zone empties it and its lung; an opacity's mask also occupies the zone above."""
    x1, y1, x2, y2 = blob(R_BASE)
    tuples = [said(labels=[R_BASE]), said("nodule", ["left mid zone lung"], lesion=None)]
    row = segment(study("s1", tuples, [(x1, y1 - 10, x2, y2)], boxes=[(x1, y1, x2, y2)])).studies[0]
    assert row["occupied"] == ["right lung", "right mid zone lung", R_BASE]
    assert row["reported"] == ["right lung", "left lung", R_BASE, "left mid zone lung"]
    expected = [
        "right apical zone lung",
        "right upper zone lung",
        "left apical zone lung",
        "left upper zone lung",
        L_BASE,
    ]
    assert row["empty"] == expected
    assert row["lesion_blocked"][3]["locations"] == ["right lung", "right mid zone lung", R_BASE]


def test_the_cardiothoracic_ratio_is_that_of_the_original_pixels(segment):
    """Heart 20 of the 58 columns of the lungs on the image, also where columns were scaled and shifted unlike rows."""
    assert segment(study("s1", [], [])).studies[0]["ctr"] == pytest.approx(20 / 58)
    wide = np.array([[3.0, 0.0, -7.0], [0.0, 1.5, 0.0]])
    assert segment(study("s1", [], [], to_original=wide)).studies[0]["ctr"] == pytest.approx(20 / 58)


def test_findings_that_share_their_mask_know_each_other(segment):
    tuples = [
        said(labels=[R_BASE]),
        said("atelectasis", [R_BASE], lesion="atelectasis"),
        said("edema", [L_BASE], lesion="edema"),
        said(**HEART),
    ]
    result = segment(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
    assert [row["shared_with"] for row in result.findings] == [[1], [0], [], []]
    assert result.findings[0]["mask_id"] == result.findings[1]["mask_id"]
