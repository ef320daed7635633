"""Clinical logic from a report's tuples to pairs, through the masks and the dataset stage: nothing is contradicted.

The picture is a toy: 64 x 80 px, eight zones side by side, lobes over them. What a finding's mask shows is given, not
segmented, so that every case of grounded, half grounded and not grounded occurs.
"""

import random
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest

from dataset_cases import OPTIONS, line, tuple_
from ils.core.labels import ANATOMY_LABELS, LESIONS, LOBES, VALID_LOCATIONS, ZONE_LABELS, zones_of
from ils.dataset import templates
from ils.dataset.pairs import Pair
from ils.dataset.stage import image_pairs
from ils.masks.evidence import evidence
from ils.masks.findings import Finding, positives, related_lesions
from ils.masks.grounding import joined, names
from ils.masks.options import Rules
from ils.masks.outcomes import Outcome
from ils.masks.stage import Masks, unit_rows
from ils.masks.units import positive_units
from ils.masks.zones import Zones, pixels

LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]
STRICT = dict.fromkeys(("predicted_other", "blocking", "kinds", "joint_location", "one_answer"), "strict")
RULES = Rules(
    denoise="both",
    min_component_px=64,
    grow_tolerance=10,
    grow_px=5,
    effusion_fill_share=0.15,
    opposite_lung="cut",
    ground_min_px=64,
    ground_min_share=0.05,
    name_min_share=0.10,
    weak_hedges="tentative",
    global_requires_definitive=True,
    **STRICT,
)
UNDER = {
    "opacity": {"opacity", "consolidation", "pneumonia", "atelectasis", "edema"},
    "consolidation": {"consolidation", "pneumonia", "atelectasis", "edema"},
}


def toy_zones() -> dict[str, np.ndarray]:
    """Right lung in columns 0..39, left in 40..79; zones are bands of 16 rows; lobes overlap the mid zones."""
    masks = {label: np.zeros((64, 80), bool) for label in ANATOMY_LABELS}
    for side, start in (("right", 0), ("left", 40)):
        for band, zone in enumerate(zones_of(side)):
            masks[zone][band * 16 : band * 16 + 16, start : start + 40] = True
            masks[f"{side} lung"] |= masks[zone]
    masks["lung upper lobe right"][0:32, 0:40] = True
    masks["lung middle lobe right"][32:48, 0:20] = True
    masks["lung lower lobe right"][40:64, 0:40] = True
    masks["lung upper lobe left"][0:44, 40:80] = True
    masks["lung lower lobe left"][44:64, 40:80] = True
    masks["heart"][30:60, 34:50] = True
    return masks


MASKS = toy_zones()
ZONES = Zones(np.stack([np.packbits(MASKS[label], axis=-1) for label in ANATOMY_LABELS]), ANATOMY_LABELS)


@dataclass
class Case:
    """What unit_rows reads of a case."""

    study_id: str = "s1"
    names: dict = field(
        default_factory=lambda: {"study_id": "s1", "image_id": "i1", "subject_id": "p1", "split": "train"}
    )


def shown(finding: Finding, labels: tuple[str, ...]) -> Outcome:
    """The outcome of a finding whose mask shows these of its labels, a patch in each."""
    if finding.target is None:
        return Outcome(finding, reason=finding.reason)
    if finding.heart:
        return Outcome(finding, ZONES["heart"], pixels(ZONES["heart"]))
    if not labels:
        return Outcome(finding, reason="no_productive_box")
    mask = np.zeros((64, 80), bool)
    for label in labels:
        rows, columns = np.nonzero(MASKS[label])
        mask[rows.min() : rows.max() + 1, columns.min() + 4 : columns.max() - 3] = True
    packed = np.packbits(mask, axis=-1)
    held = {label: int((mask & MASKS[label]).sum()) for label in ZONE_LABELS}
    never = [label for label in finding.reported if label not in labels]
    named = tuple(names(labels, held, int(mask.sum()), min_share=0.1, never=never))
    return Outcome(finding, packed, int(mask.sum()), tuple(labels), named, reason=None if named else "no_name")


def pairs_of(
    tuples: list[dict],
    grounded: dict[int, list[str]] | None = None,
    ctr: float = 0.4,
    seed: int = 7,
    more: dict | None = None,
    **logic: str,
) -> list[Pair]:
    """Go from tuples to pairs. ``grounded``: tuple index -> the labels its mask shows (default: all of them).

    ``more``: further fields of the report line.
    """
    rules = replace(RULES, **logic)
    options = replace(OPTIONS, seed=seed, kinds=rules.kinds, one_answer=rules.one_answer)
    report = line(tuples, **more or {})
    outcomes = []
    for finding in positives(tuples, rules):
        labels = finding.reported if grounded is None else grounded.get(finding.index, finding.reported)
        outcomes.append(shown(finding, tuple(label for label in ZONE_LABELS if label in labels)))
    units = unit_rows(Case(), positive_units(outcomes, ZONES.union, rules), Masks())
    others = positives(report.get("other_tuples", []), rules)
    row = evidence(outcomes, others, related_lesions(report), ZONES, rules)
    made, _ = image_pairs(Case().names | {"ctr": ctr} | row, units, report, options)
    return made


def says(lesion: str | None, labels: list[str] | None = None, **changes: object) -> dict:
    """A positive tuple."""
    place = {"location": labels or None, "labels": labels or []}
    return tuple_(lesion, "positive", **place | changes)


def negated_texts(tuples: list[dict], seeds: int = 150, **changes: object) -> set[str]:
    """Every negative instruction that some seed gives."""
    return {
        pair.instruction for seed in range(seeds) for pair in pairs_of(tuples, seed=seed, **changes) if not pair.seg
    }


def texts(made: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.instruction, pair.answer) for pair in made if pair.seg]


# The paper's own examples


def test_figure_3():
    """Bibasilar atelectasis. Cardiomegaly."""
    bases = ["right lung base", "left lung base"]
    tuples = [says("atelectasis", bases), says("cardiomegaly", None, sentence_index=2, category="heart")]
    made = texts(pairs_of(tuples, ctr=0.6))
    assert made == [
        ("Segment the atelectasis in the right lung base and left lung base.", "[SEG]"),
        (
            "Segment the opacity in the right lung base and left lung base and predict its type.",
            "[SEG] It is highly suggestive of atelectasis.",
        ),
        ("Segment the cardiomegaly.", "[SEG]"),
        ("Segment the atelectasis.", "[SEG] It is located in the right lung base and left lung base."),
    ]


def test_figure_11_half_grounded_and_tentative():
    """Opacities of both bases, likely atelectasis, the mask in the right one alone: no text names the left base."""
    bases = ["right lung base", "left lung base"]
    finding = says("opacity", bases, certainty="tentative", hedge="strong", predicted_lesion_type="atelectasis")
    made = [pair for pair in pairs_of([finding], {0: ["right lung base"]}) if pair.seg]
    assert [(pair.instruction, pair.answer) for pair in made] == [
        ("Segment the opacity in the right lung base.", "[SEG]"),
        (
            "Segment the opacity in the right lung base and predict its type.",
            "[SEG] It possibly reflects atelectasis.",
        ),
    ]
    assert {(pair.target, pair.certainty, pair.reported_location) for pair in made} == {
        ("atelectasis", "tentative", tuple(bases))
    }


# Each strict rule: a report that the paper's letter would contradict


def test_strict_predicted_other():
    """An opacity that is a nipple shadow is none; nothing is denied there either."""
    report = [says("opacity", ["right lung base"], predicted_lesion_type="nipple shadow")]
    assert texts(pairs_of(report)) == []
    assert "Segment the edema in the right lung base." not in negated_texts(report)
    letter = texts(pairs_of(report, predicted_other="paper"))
    assert ("Segment the opacity in the right lung base.", "[SEG]") in letter


def test_strict_blocking():
    """A retrocardiac consolidation has no zone label: the left base is not free of consolidation."""
    report = [
        says("consolidation", [], location=["retrocardiac"], category="lateral view location"),
        tuple_("effusion"),
    ]
    contradiction = "Segment the consolidation in the left lung base."
    assert contradiction not in negated_texts(report)
    assert contradiction in negated_texts(report, blocking="paper")
    assert "Segment the consolidation in the right lung base." in negated_texts(report)


def test_strict_kinds():
    """A pneumonia is an opacity, though the report also says "no other opacity"."""
    report = [says("pneumonia", ["right lung base"]), tuple_("opacity")]
    contradictions = {"Segment the opacity in the right lung base.", "Segment the opacity in the right lung."}
    assert not contradictions & negated_texts(report)
    assert contradictions & negated_texts(report, kinds="paper")


def test_strict_joint_location():
    """An opacity of the right lung and a pneumonia of its base that the mask does not show."""
    report = [says("opacity", ["right lung"]), says("pneumonia", ["right lung base"])]
    contradiction = ("Segment the opacity in the right lung.", "[SEG]")
    grounded = {0: ["right lung"], 1: []}
    assert contradiction not in texts(pairs_of(report, grounded))
    assert contradiction in texts(pairs_of(report, grounded, joint_location="paper"))
    both = [pair for pair in pairs_of(report) if pair.instruction == contradiction[0]]
    assert len(both) == 1


def test_strict_one_answer():
    """Atelectasis for sure and perhaps edema, at one place: what is the opacity there?"""
    report = [
        says("atelectasis", ["left lung base"]),
        says("opacity", ["left lung base"], predicted_lesion_type="edema", certainty="tentative", hedge="strong"),
    ]
    question = "Segment the opacity in the left lung base and predict its type."
    letter = {"joint_location": "paper"}
    assert question not in dict(texts(pairs_of(report, **letter)))
    answers = [answer for asked, answer in texts(pairs_of(report, one_answer="paper", **letter)) if asked == question]
    assert len(set(answers)) == 2


def test_tentative_effusion_stands_against_no_opacity():
    """Its own text calls it an opacity."""
    report = [says("effusion", ["left lung base"], certainty="tentative", hedge="strong"), tuple_("opacity")]
    assert ("Segment the opacity in the left lung base.", "[SEG]") in texts(pairs_of(report))
    denied = negated_texts(report)
    assert "Segment the opacity in the left lung base." not in denied
    assert "Segment the opacity." not in denied


def test_tentative_effusion_is_an_opacity_beside_no_new_opacity():
    report = [
        says("effusion", ["left lung base"], certainty="tentative", hedge="strong"),
        tuple_("opacity", denies=False),
    ]
    denied = {text for text in negated_texts(report) if "opacity" in text}
    assert "Segment the opacity in the right lung." in denied
    assert not any("left lung." in text or "left lung base" in text for text in denied)


def test_weakly_hedged_heart_is_neither_affirmed_nor_denied():
    report = [says("cardiomegaly", None, certainty="tentative", hedge="weak", category="heart")]
    assert not [pair for pair in pairs_of(report, ctr=0.3) if pair.target == "cardiomegaly"]
    sure = [says("cardiomegaly", None, category="heart")]
    assert texts(pairs_of(sure)) == [("Segment the cardiomegaly.", "[SEG]")]


def test_related_term_is_not_denied():
    report = [says(None, ["right lung"], entity="vascular congestion", related="edema")]
    assert not any("edema" in text for text in negated_texts(report))
    assert any("effusion" in text for text in negated_texts(report))


def test_no_finding_of_any_kind_is_under_a_silent_negative():
    """A nodule of the right upper zone keeps every type from being denied there (A.6)."""
    report = [says(None, ["right upper zone lung"])]
    denied = negated_texts(report)
    assert not any("right upper zone" in text or "the right lung." in text for text in denied)
    assert any("right lung base" in text for text in denied)


@pytest.mark.parametrize(
    ("tuples", "silent"),
    [([], {"mentions_lungs": False}), ([], {"comparison_only": True}), ([tuple_("pneumonia", denies=False)], {})],
)
def test_the_other_section_only_vetoes(tuples, silent):
    """The findings say nothing of a pneumonia that may be denied; the impression affirms one at the right base."""
    other = {"other_tuples": [says("pneumonia", ["right lung base"])]}
    assert not any("pneumonia" in text for text in negated_texts(tuples, more=silent))
    assert not any("pneumonia" in text for text in negated_texts(tuples, more=silent | other))
    assert any("pneumonia" in text for text in negated_texts([], more=other))


def test_one_of_several_candidates_is_no_part_of_a_global_answer():
    """A pneumonia of the left base; an opacity of the right one, surely there, is "atelectasis or pneumonia"."""
    pneumonia = says("pneumonia", ["left lung base"])
    doubtful = says("opacity", ["right lung base"], candidates=["atelectasis", "pneumonia"])
    whole = ("Segment the pneumonia.", "[SEG] It is located in the left lung base.")
    assert whole in texts(pairs_of([pneumonia]))
    assert not any(asked == whole[0] for asked, _ in texts(pairs_of([pneumonia, doubtful])))


# Properties over random reports


def random_report(seed: int) -> tuple[list[dict], dict[int, list[str]], float]:
    """Positive and negative tuples of all kinds, and what the masks show of the former."""
    draw = random.Random(seed)
    tuples: list[dict] = []
    grounded: dict[int, list[str]] = {}
    for _ in range(draw.randrange(5)):
        lesion = draw.choice([*LUNG_LESIONS, *LUNG_LESIONS, "cardiomegaly", None])
        if draw.random() < 0.35:
            places = draw.choice([None, ["right lung"], ["left lung base"], ["lung lower lobe left"]])
            tuples.append(
                tuple_(
                    lesion,
                    location=places,
                    labels=places or [],
                    certainty=draw.choice(["definitive", "definitive", "tentative"]),
                    denies=draw.random() < 0.8,
                )
            )
            continue
        labels = draw.choice([[], *[draw.sample(ZONE_LABELS, draw.randint(1, 2)) for _ in range(6)]])
        sure = draw.random() < 0.6
        changes: dict = {
            "certainty": "definitive" if sure else "tentative",
            "hedge": "definite" if sure else draw.choice(["strong", "weak"]),
            "location": labels or draw.choice([["retrocardiac"], ["right pleura"], None]),
            "labels": [] if lesion == "cardiomegaly" else labels,
            "category": "heart" if lesion == "cardiomegaly" else "lung",
        }
        if lesion in ("opacity", "consolidation") and draw.random() < 0.5:
            changes |= draw.choice(
                [
                    {"predicted_lesion_type": draw.choice(["pneumonia", "atelectasis", "edema", "nipple shadow"])},
                    {"candidates": ["atelectasis", "pneumonia"]},
                ]
            )
        tuples.append(tuple_(lesion, "positive", **changes))
        grounded[len(tuples) - 1] = [label for label in labels if draw.random() < 0.7]
    return tuples, grounded, draw.choice([0.40, 0.45, 0.46, 0.55])


def stands(tuples: list[dict], lesion: str) -> list[dict]:
    """Positive tuples that make ``lesion``, or a kind of it, true or possible. Independent of the code under test."""
    kinds = UNDER.get(lesion, {lesion})
    found = []
    for row in tuples:
        if row["presence"] != "positive":
            continue
        named = {row["lesion_type"], row["predicted_lesion_type"], *row.get("candidates", ())}
        if lesion == "opacity" and row["certainty"] == "tentative" and row["lesion_type"] == "effusion":
            named.add("opacity")
        if named & kinds:
            found.append(row)
    return found


def meets(row: dict, place: str) -> bool:
    return any((MASKS[label] & MASKS[place]).any() for label in row["labels"])


@pytest.mark.parametrize("block", range(8))
def test_no_negative_contradicts_the_report(block):
    negatives = 0
    for seed in range(block * 150, block * 150 + 150):
        tuples, grounded, ctr = random_report(seed)
        made = pairs_of(tuples, grounded, ctr, seed=seed)
        positive = [pair for pair in made if pair.seg]
        targets = [pair.target for pair in made if not pair.seg]
        assert len(set(targets)) == len(targets)
        for pair in (pair for pair in made if not pair.seg):
            negatives += 1
            against = stands(tuples, pair.target)
            if pair.type == "global":
                assert not against, (seed, pair)
                assert pair.target != "cardiomegaly" or ctr <= 0.45
                continue
            (place,) = pair.location
            assert not any(meets(row, place) for row in against), (seed, pair)
            for row in against:
                if not row["labels"]:
                    # Somewhere unknown: the side the text names, else anywhere.
                    side = {"retrocardiac": "left", "right pleura": "right"}.get((row["location"] or [""])[0], "")
                    assert not place.startswith(side) or (
                        row["location"] == ["retrocardiac"] and place not in ("left lung", "left lung base")
                    ), (seed, pair)
            explicit = any(
                row["presence"] == "negative" and row["lesion_type"] == pair.target and row["denies"] for row in tuples
            )
            if not explicit:
                others = [row for row in tuples if row["presence"] == "positive"]
                assert not any(meets(row, place) for row in others), (seed, pair)
            for other in positive:
                overlap = set(other.location) & {place}
                assert not (overlap and other.target in UNDER.get(pair.target, {pair.target})), (seed, pair, other)
    assert negatives > 300


def test_no_positive_says_more_than_report_and_mask():
    positives_seen = 0
    for seed in range(1200):
        tuples, grounded, ctr = random_report(seed)
        made = pairs_of(tuples, grounded, ctr, seed=seed)
        answers: dict[str, set] = {}
        for pair in made:
            answers.setdefault(pair.instruction, set()).add((pair.answer, pair.mask_id))
            templates.parse(pair.instruction, pair.answer)
        assert all(len(found) == 1 for found in answers.values()), (seed, answers)
        for pair in (pair for pair in made if pair.seg and pair.target != "cardiomegaly"):
            positives_seen += 1
            assert pair.mask_id
            assert set(pair.grounded_location) <= set(pair.reported_location)
            assert list(pair.location) == joined(pair.location)
            affirmed = [row for row in tuples if row["presence"] == "positive"]
            for place in pair.location:
                assert place in VALID_LOCATIONS
                assert any(
                    (MASKS[label] & MASKS[place]).any()
                    for index, row in enumerate(tuples)
                    if row in affirmed
                    for label in grounded.get(index, [])
                ), (seed, pair)
            if pair.type == "global":
                members = [
                    row for row in stands(tuples, pair.target) if row["predicted_lesion_type"] != "nipple shadow"
                ]
                assert members
                for index, row in enumerate(tuples):
                    if row in members:
                        assert row["certainty"] == "definitive", (seed, pair, row)
                        assert row["labels"], (seed, pair, row)
                        assert sorted(grounded[index]) == sorted(row["labels"]), (seed, pair, row)
    assert positives_seen > 500


def test_lobes_are_never_named():
    report = [says("edema", [lobe]) for lobe in LOBES]
    for pair in pairs_of(report):
        assert not set(pair.location) & set(LOBES)


@pytest.mark.parametrize(("logic", "value"), list(product(STRICT, ["strict", "paper"])))
def test_every_logic_key_gives_valid_texts(logic, value):
    for seed in range(60):
        tuples, grounded, ctr = random_report(seed)
        for pair in pairs_of(tuples, grounded, ctr, seed=seed, **{logic: value}):
            assert templates.parse(pair.instruction, pair.answer).present == pair.seg
