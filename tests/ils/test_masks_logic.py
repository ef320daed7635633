"""The masks stage on constructed chests: the paper's examples, and each strict rule where its letter fails."""

import json

import numpy as np
import pytest

from cxr.base.vocabulary import VALID_LOCATIONS
from masks_chest import EFFUSION, L_BASE, R_BASE, SIZE, TAUS, blob, heart, study
from masks_shard import said

# --- the paper's examples ------------------------------------------------------------------------------------------


def example(shared, number) -> dict:
    return json.loads((shared / "fixtures" / "paper_examples.json").read_text())["figure_11"][number]


OPACITIES = {"entity": "opacities", "predicted_lesion_type": "atelectasis", "candidates": ["atelectasis"]}
FIGURE_11 = [
    (said(labels=[L_BASE, R_BASE], certainty="tentative", **OPACITIES), [R_BASE], ["basic"], "opacity", True),
    (said(labels=[R_BASE], **EFFUSION), [R_BASE], ["basic", "global"], "effusion", False),
    (said("edema", ["right lung", "left lung"], lesion="edema"), [L_BASE], ["basic"], "edema", True),
]


@pytest.mark.parametrize("number", range(3))
def test_figure_11(segment, shared, number):
    expected = example(shared, number)
    told, blobs, kinds, word, inference = FIGURE_11[number]
    result = segment(study("s1", [told], [blob(zone) for zone in blobs]))
    assert [unit["kind"] for unit in result.units] == kinds
    for unit in result.units:
        assert unit["target"] == expected["target"]
        assert unit["certainty"] == expected["certainty"]
        assert unit["grounded_location"] == unit["location"] == expected["grounded"]
        assert sorted(unit["reported_location"]) == sorted(expected["reported"])
        assert unit["dropped"] is None
    assert (result.units[0]["word"], result.units[0]["inference"]) == (word, inference)


def test_figure_3(segment):
    tuples = [
        said("atelectasis", [R_BASE, L_BASE], lesion="atelectasis"),
        said("cardiomegaly", lesion="cardiomegaly", category="heart", sentence=2),
    ]
    result = segment(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
    assert result.made() == [
        ("basic", "atelectasis", [R_BASE, L_BASE]),
        ("global", "cardiomegaly", ["heart"]),
        ("global", "atelectasis", [R_BASE, L_BASE]),
    ]
    hearts = result.globals()["cardiomegaly"]
    assert np.array_equal(result.mask(hearts), heart())
    assert hearts["reported_location"] == hearts["grounded_location"] == ["heart"]
    assert result.units[0]["mask_id"] == result.units[2]["mask_id"] == result.findings[0]["mask_id"]


# --- strict rules: each on a report that the paper's letter would contradict ----------------------------------------


def test_predicted_other(segment):
    """'Right basal opacity is a nipple shadow': no opacity may be asked for, and none denied there."""
    told = said(labels=[R_BASE], predicted_lesion_type="nipple shadow", candidates=["nipple shadow"])
    made = study("s1", [told], [blob(R_BASE)])
    strict, paper = segment(made), segment(made, predicted_other="paper")
    assert strict.units == []
    assert strict.findings[0]["reason"] == "predicted_other"
    assert R_BASE not in strict.studies[0]["empty"]
    assert strict.studies[0]["standing"] == [{"lesion": "opacity", "locations": ["right lung", R_BASE]}]
    assert paper.made()[0] == ("basic", "opacity", [R_BASE])


def test_blocking_of_a_retrocardiac_opacity(segment):
    """'Retrocardiac opacity' has no zone label: a negative at the left base would contradict it."""
    told = said(location=["retrocardiac"], category="lateral view location")
    for block in ([], ["left lung", L_BASE]):
        made = study("s1", [told | {"block": block}], [])
        strict, paper = segment(made).studies[0], segment(made, blocking="paper").studies[0]
        assert strict["blocked"] == ["left lung", L_BASE]
        assert strict["empty"] == [place for place in VALID_LOCATIONS if place not in ("left lung", L_BASE)]
        assert strict["lesion_blocked"][3]["locations"] == ["left lung", L_BASE]
        assert paper["blocked"] == []
        assert paper["empty"] == list(VALID_LOCATIONS)


@pytest.mark.parametrize(
    ("more", "sides"),
    [
        ({"category": "pleura", "location": ["left pleura"], "lesion": None}, ["left"]),
        ({"category": "pleura", "lesion": None}, ["right", "left"]),
        ({"category": "rib", "lesion": None}, []),
        ({"category": None, "lesion": None, "block": None}, ["right", "left"]),
        ({"category": "mediastinum"}, ["right", "left"]),
        ({"category": "lung", "location": ["bilateral", "left greater than right"], "lesion": None}, ["right", "left"]),
        ({"category": "heart", "lesion": "cardiomegaly"}, []),
        # The engine names the lungs: a negative at a zone of them would contradict it too.
        ({"category": "pleura", "lesion": None, "block": ["right lung", "left lung"]}, ["right", "left"]),
        ({"category": "lateral view location", "lesion": "effusion", "block": ["left lung"]}, ["left"]),
    ],
)
def test_blocking_by_side(segment, more, sides):
    blocked = segment(study("s1", [said(**more)], [])).studies[0]["blocked"]
    assert blocked == [place for place in VALID_LOCATIONS if place.split()[0] in sides]


def test_blocking_by_the_section_that_was_not_used(segment):
    """The impression adds a right basal pneumonia: no pair is made of it, no negative may deny it."""
    more = {"line": {"other_tuples": [said("pneumonia", [R_BASE], lesion="pneumonia")]}}
    made = study("s1", [said("effusion", presence="negative")], [blob(R_BASE)], **more)
    strict, paper = segment(made), segment(made, blocking="paper")
    assert strict.units == strict.findings == []
    assert "right lung" not in strict.studies[0]["empty"]
    assert strict.studies[0]["standing"] == [{"lesion": "pneumonia", "locations": ["right lung", R_BASE]}]
    assert paper.studies[0]["empty"] == list(VALID_LOCATIONS)


def test_blocking_of_the_lung_around_an_empty_zone_mask(segment):
    """'Right apical opacity', but the apex mask is empty, and so overlaps nothing."""
    apex = "right apical zone lung"
    made = study("s1", [said(labels=[apex])], [])
    made["zones"][apex] = np.zeros((SIZE, SIZE), bool)
    strict, paper = segment(made).studies[0], segment(made, blocking="paper").studies[0]
    assert strict["blocked"] == ["right lung", apex]
    assert {"right lung", apex}.isdisjoint(strict["empty"])
    assert {"right lung", apex} <= set(paper["empty"])


def test_blocking_of_the_lung_that_a_zone_belongs_to_by_name(segment):
    """Masks made one by one need not nest: a base outside its lung mask still lies in that lung."""
    made = study("s1", [said(labels=[L_BASE])], [])
    made["zones"]["left lung"] = made["zones"]["left lung"] & ~made["zones"][L_BASE]
    assert "left lung" not in segment(made).studies[0]["empty"]
    assert "left lung" in segment(made, blocking="paper").studies[0]["empty"]


def test_a_location_without_pixels_is_never_called_empty(segment):
    made = study("s1", [], [])
    made["zones"][L_BASE] = np.zeros((SIZE, SIZE), bool)
    assert L_BASE not in segment(made).studies[0]["empty"]


def test_kinds_stand_against_negatives_of_what_contains_them(segment):
    """'Right basal pneumonia': 'there is no consolidation in the right lung base' would contradict it."""
    made = study("s1", [said("pneumonia", [R_BASE], lesion="pneumonia")], [])
    strict = {row["lesion"]: row for row in segment(made).studies[0]["lesion_blocked"]}
    paper = {row["lesion"]: row for row in segment(made, kinds="paper").studies[0]["lesion_blocked"]}
    for lesion in ("pneumonia", "consolidation", "opacity"):
        assert strict[lesion] == {
            "lesion": lesion,
            "locations": ["right lung", R_BASE],
            "anywhere": True,
            "global_blocked": True,
        }
    assert not strict["edema"]["anywhere"]
    assert not strict["effusion"]["global_blocked"]
    assert not paper["consolidation"]["anywhere"]


def test_kinds_of_a_tentative_effusion(segment):
    """It is asked for as an opacity: to deny an opacity beside it would contradict that."""
    made = study("s1", [said(labels=[L_BASE], certainty="tentative", **EFFUSION)], [blob(L_BASE)])
    strict, paper = segment(made), segment(made, kinds="paper")
    assert strict.made() == [("basic", "opacity", [L_BASE])]
    assert [row["lesion"] for row in strict.studies[0]["standing"]] == ["opacity", "effusion"]
    assert [row["lesion"] for row in paper.studies[0]["standing"]] == ["effusion"]


def test_kinds_under_opacity_belong_to_its_global(segment):
    """'Right basal opacity. Left basal consolidation.': 'Segment the opacity.' must cover both."""
    tuples = [said(labels=[R_BASE]), said("consolidation", [L_BASE], lesion="consolidation", sentence=2)]
    made = study("s1", tuples, [blob(R_BASE), blob(L_BASE)])
    strict, paper = segment(made), segment(made, kinds="paper")
    unit = strict.globals()["opacity"]
    assert (unit["location"], unit["finding"], unit["sentence_index"]) == ([R_BASE, L_BASE], [0, 1], 1)
    assert np.array_equal(strict.mask(unit), strict.mask(strict.findings[0]) | strict.mask(strict.findings[1]))
    assert strict.globals()["consolidation"]["location"] == [L_BASE]
    assert paper.globals()["opacity"]["location"] == [R_BASE]


def test_kinds_under_opacity_that_are_not_grounded_prevent_its_global(segment):
    tuples = [said(labels=[R_BASE]), said("consolidation", [L_BASE], lesion="consolidation")]
    made = study("s1", tuples, [blob(R_BASE)])
    assert set(segment(made).globals()) == set()
    assert set(segment(made, kinds="paper").globals()) == {"opacity"}


def test_a_global_needs_a_finding_of_the_type_itself(segment):
    made = study("s1", [said("edema", [R_BASE], lesion="edema")], [blob(R_BASE)])
    assert set(segment(made).globals()) == {"edema"}


def test_related_terms(segment):
    """Vascular congestion stands beside edema: no negative of edema, nor of what contains it, as a whole."""
    more = {"related": "edema", "lesion": None, "category": "vessels"}
    row = segment(study("s1", [said("vascular congestion", **more)], [])).studies[0]
    assert row["related"] == ["edema"]
    assert [one["lesion"] for one in row["lesion_blocked"] if one["global_blocked"]] == [
        "opacity",
        "consolidation",
        "edema",
    ]
    assert row["empty"] == list(VALID_LOCATIONS)


def test_joint_location_of_a_grounded_sibling(segment):
    """'Opacity in the right lung. Consolidation at the right base.': the consolidation is an opacity, too."""
    tuples = [said(labels=["right lung"]), said("consolidation", [R_BASE], lesion="consolidation")]
    blobs = [blob("right upper zone lung"), blob(R_BASE)]
    made = study("s1", tuples, blobs, boxes=[blobs[0], blobs[1]])
    taus = {"general": TAUS | {"anatomy": 0.2}, "edema": TAUS}
    made["boxes"][0] = (4, 14, 28, 40, 0.9)  # fits the right lung, not the base
    strict, paper = segment(made, taus=taus), segment(made, taus=taus, joint_location="paper")
    first, second = strict.basics()
    assert (first["word"], first["finding"], first["location"]) == ("opacity", [0, 1], ["right lung"])
    assert strict.mask(first).sum() == 2 * 156
    assert (second["word"], second["finding"]) == ("consolidation", [1])
    assert strict.mask(second).sum() == 156
    assert paper.mask(paper.basics()[0]).sum() == 156


@pytest.mark.parametrize(("lesion", "why"), [("pneumonia", "several_types"), ("consolidation", None)])
def test_joint_location_and_lesion_inference(segment, lesion, why):
    """'Possible atelectasis of the right lung. Right basal pneumonia.': the opacity there is not of one type."""
    tuples = [said("atelectasis", ["right lung"], lesion="atelectasis", certainty="tentative")]
    tuples.append(said(lesion, [R_BASE], lesion=lesion))
    made = study("s1", tuples, [blob("right upper zone lung"), blob(R_BASE)], boxes=[(4, 14, 28, 40), blob(R_BASE)])
    unit = segment(made, taus={"general": TAUS | {"anatomy": 0.2}, "edema": TAUS}).basics()[0]
    assert (unit["word"], unit["finding"]) == ("opacity", [0, 1])
    assert (unit["inference"], unit["inference_dropped"]) == (why is None, why)


def test_joint_location_of_an_ungrounded_sibling(segment):
    """The consolidation at the base is not found: no mask answers 'the opacity in the right lung'."""
    tuples = [said(labels=["right lung"]), said("consolidation", [R_BASE], lesion="consolidation")]
    made = study("s1", tuples, [blob("right upper zone lung")], boxes=[(4, 14, 28, 40)])
    strict, paper = segment(made), segment(made, joint_location="paper")
    assert [(unit["dropped"], unit["mask_id"]) for unit in strict.basics()] == [("ungrounded_sibling", None)]
    assert ("basic", "opacity", ["right lung"]) in paper.made()


def test_joint_location_takes_the_part_inside(segment):
    """'Opacity at the right base. Bibasilar atelectasis.': only the right half of the latter lies in the location."""
    tuples = [said(labels=[R_BASE]), said("atelectasis", [R_BASE, L_BASE], lesion="atelectasis")]
    result = segment(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
    first, second = result.basics()
    assert first["location"] == [R_BASE]
    assert not result.mask(first)[:, 32:].any()
    assert second["location"] == [R_BASE, L_BASE]
    assert result.mask(second)[:, 32:].any()


def test_joint_location_of_a_finding_without_labels(segment):
    """'Left basal consolidation. Retrocardiac consolidation.': the second may lie there and is not shown."""
    told = said("consolidation", lesion="consolidation", location=["retrocardiac"], category="lateral view location")
    made = study("s1", [said("consolidation", [L_BASE], lesion="consolidation"), told], [blob(L_BASE)])
    assert segment(made).made() == []
    assert segment(made, joint_location="paper").made() == [("basic", "consolidation", [L_BASE])]


def test_one_answer_of_equal_instructions(segment):
    """Two tentative findings at one place are one 'opacity in the right lung base': one pair, no twin."""
    tuples = [
        said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative"),
        said("pneumonia", [R_BASE], lesion="pneumonia", certainty="tentative", sentence=2),
    ]
    made = study("s1", tuples, [blob(R_BASE)])
    strict, paper = segment(made), segment(made, one_answer="paper")
    assert strict.made() == [("basic", "opacity", [R_BASE])]
    assert strict.basics()[0]["finding"] == [0, 1]
    assert (strict.basics()[0]["inference"], strict.basics()[0]["inference_dropped"]) == (False, "several_types")
    assert len(paper.made()) == 2


def test_one_answer_falls_if_one_of_its_findings_does(segment):
    """The first opacity also lies in a lobe that is not found, which could be the base the second one is asked at."""
    lobe = "lung lower lobe right"
    made = study("s1", [said(labels=[R_BASE, lobe]), said(labels=[R_BASE])], [blob(R_BASE)])
    made["zones"][lobe] = np.zeros((SIZE, SIZE), bool)
    strict = segment(made)
    assert strict.made() == []
    assert [(unit["finding"], unit["dropped"]) for unit in strict.basics()] == [([0, 1], "ungrounded_sibling")]


def test_one_answer_of_lesion_inference(segment):
    """Definite atelectasis and pneumonia at one base: 'the opacity there' cannot be highly suggestive of both."""
    tuples = [said("atelectasis", [R_BASE], lesion="atelectasis"), said("pneumonia", [R_BASE], lesion="pneumonia")]
    made = study("s1", tuples, [blob(R_BASE)])
    strict, paper = segment(made).basics(), segment(made, one_answer="paper").basics()
    assert [(unit["inference"], unit["inference_dropped"]) for unit in strict] == [(False, "conflicting_answer")] * 2
    assert [unit["dropped"] for unit in strict] == [None, None]
    assert [unit["inference"] for unit in paper] == [True, True]


def test_one_answer_of_one_type_with_two_certainties(segment):
    tuples = [
        said("atelectasis", [R_BASE], lesion="atelectasis"),
        said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative"),
    ]
    units = segment(study("s1", tuples, [blob(R_BASE)])).basics()
    assert [(unit["word"], unit["inference"]) for unit in units] == [("atelectasis", False), ("opacity", False)]
