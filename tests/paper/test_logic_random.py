"""Clinical logic from a report's tuples to pairs: over random reports, nothing that is said is contradicted."""

import random
from itertools import product

import pytest

from cxr.base.vocabulary import LOBES, VALID_LOCATIONS, ZONE_LABELS
from cxr.ils import templates
from cxr.ils.masks.zones import merge_locations
from dataset_cases import tuple_
from logic_cases import LUNG_LESIONS, MASKS, STRICT, UNDER, pairs_of, says


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
            templates.parse_pair(pair.instruction, pair.answer)
        assert all(len(found) == 1 for found in answers.values()), (seed, answers)
        for pair in (pair for pair in made if pair.seg and pair.target != "cardiomegaly"):
            positives_seen += 1
            assert pair.mask_id
            assert set(pair.grounded_location) <= set(pair.reported_location)
            assert list(pair.location) == merge_locations(pair.location)
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
            assert templates.parse_pair(pair.instruction, pair.answer).present == pair.seg
