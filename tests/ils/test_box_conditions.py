"""Explain and the page print the decision on a box itself: no printed number contradicts its verdict."""

import random
import re
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from cxr.base.vocabulary import ANATOMY_LABELS, LUNGS
from cxr.ils.masks import thresholds
from cxr.ils.masks.algorithm import CONDITION_BITS
from cxr.ils.masks.box_conditions import (
    MASKS_OUTDATED,
    MEASURED_CONDITIONS,
    BoxJudgement,
    format_measure,
    format_threshold,
    judge_boxes,
)
from cxr.ils.masks.segmenter import LesionSegmenter
from cxr.ils.masks.settings import Rules
from cxr.ils.masks.thresholds import Thresholds
from cxr.ils.masks.zones import Zones
from cxr.reporting.explain.explain_study import box_rows
from cxr.reporting.page import cases
from masks_shard import RULES

SIZE = 24
NUMBER = re.compile(r"(-?\d+\.\d+) (<|>=) (\d+(?:\.\d+)?)")


def case(seed):
    """Random zones, lungs, map and boxes; every second time a threshold is just what a box has, or a digit beside."""
    draw, values = random.Random(seed), np.random.default_rng(seed)
    masks = {label: values.random((SIZE, SIZE)) < draw.choice((0, 0.3, 0.9)) for label in ANATOMY_LABELS}
    lungs = {label: values.random((SIZE, SIZE)) < draw.choice((0.2, 0.7)) for label in LUNGS}
    anomaly = values.choice(np.arange(0, 60, dtype=np.uint8), (SIZE, SIZE))
    corners = values.uniform(-3, SIZE + 3, (8, 4)).round(1)
    corners[:, 2:] = np.maximum(corners[:, 2:], corners[:, :2] + values.choice([0, 2, 9], (8, 1)))
    names = ("x1", "y1", "x2", "y2", "confidence")
    sure = values.choice([0.1, 0.1 + 0.2, 0.3, 0.30000000000000004, 0.9], (8, 1))
    boxes = [dict(zip(names, row, strict=True)) for row in np.hstack([corners, sure]).tolist()]
    part = {name: draw.choice((0.0, 0.05, 0.1, 0.125, 0.3, 1 / 3, 0.1234567)) for name in MEASURED_CONDITIONS}
    part |= {"ano": draw.choice((0.0, 0.005, 0.05, 0.1))}
    labels = draw.sample(ANATOMY_LABELS[:15], draw.randint(1, 3))
    settings = RULES | {"thresholds": {"general": part, "edema": part | {"ano": 0.0}}}
    if seed % 2:
        of_box = judge_boxes(boxes, labels, masks, lungs, anomaly, target="opacity", settings=settings)[seed % 8].values
        name = draw.choice(MEASURED_CONDITIONS)
        value = float(of_box[name])
        part[name] = draw.choice([value, np.nextafter(value, 1).item(), round(value, 4), max(0.0, round(value, 7))])
    return boxes, labels, masks, lungs, anomaly, settings


def stored(boxes, labels, masks, lungs, anomaly, settings, target):
    """The verdicts that the masks stage stores: of all zones, on the masks as the shards hold them."""
    taus = Thresholds.from_settings(settings["thresholds"]["edema" if target == "edema" else "general"])
    segmenter = LesionSegmenter(
        anomaly=anomaly,
        image=lambda: np.zeros_like(anomaly),
        zones=Zones(np.packbits(np.stack([masks[label] for label in ANATOMY_LABELS]), axis=-1), ANATOMY_LABELS),
        lungs={label: np.packbits(mask, axis=-1) for label, mask in lungs.items()},
        boxes=np.array([[box[name] for name in ("x1", "y1", "x2", "y2")] for box in boxes]),
        confidence=np.array([box["confidence"] for box in boxes]),
        rules=Rules.from_job(settings),
        smallest_level=taus.level,
    )
    return segmenter.segment(tuple(labels), taus, fill=False).verdicts.tolist()


@pytest.mark.parametrize("part", range(4))
def test_no_printed_number_contradicts_a_verdict(part):
    signs, ties, kept = {"<": 0, ">=": 0}, 0, 0
    for seed in range(part * 100, part * 100 + 100):
        boxes, labels, masks, lungs, anomaly, settings = case(seed)
        target = ("opacity", "edema")[seed // 2 % 2]
        verdicts = stored(boxes, labels, masks, lungs, anomaly, settings, target)
        taus = settings["thresholds"]["edema" if target == "edema" else "general"]
        row = {"box_verdicts": verdicts, "reported": labels, "target": target, "finding": 0, "entity": "thing"}
        image = SimpleNamespace(
            boxes=[box | {"is_used": True, "class_name": "a"} for box in boxes],
            arrays={"anatomy": masks, "organs": lungs, "anomaly": anomaly},
        )
        found = judge_boxes(boxes, labels, masks, lungs, anomaly, target=target, settings=settings)
        for number, _, *cells, words in box_rows(row, image, settings):
            verdict = verdicts[int(number)]
            assert MASKS_OUTDATED not in words
            assert (words == "productive") == (verdict == 0)
            for name, cell in zip(MEASURED_CONDITIONS, cells, strict=True):
                value, sign, threshold = NUMBER.fullmatch(cell).groups()
                assert sign == ("<" if verdict & CONDITION_BITS[name] else ">=")
                # the text alone, read as decimals, says the same as the sign
                assert (Fraction(value) < Fraction(threshold)) == (sign == "<")
                assert Fraction(threshold) == thresholds.exact_fraction(taus[name])
                signs[sign] += 1
                ties += Fraction(value) == Fraction(threshold)
        for verdict, judged in zip(verdicts, found, strict=True):
            reason = cases.describe_verdict(verdict, judged, taus)
            assert MASKS_OUTDATED not in reason
            assert all(Fraction(one) < Fraction(other) for one, _, other in NUMBER.findall(reason))
            kept += verdict == 0
    assert min(signs.values()) > 500
    assert ties > 10
    assert kept > 5


def test_a_number_just_below_its_threshold_does_not_become_it():
    """In floats 2^60 / (2^60 + 1) is 1; the decision is that it is below."""
    almost = Fraction(2**60, 2**60 + 1)
    assert float(almost) == 1.0
    assert (format_measure(almost, 1.0), format_threshold(1.0)) == ("0.999", "1")
    assert not thresholds.is_at_least(np.array([almost.numerator]), np.array([almost.denominator]), Fraction(1)).any()


@pytest.mark.parametrize(
    ("threshold", "text"),
    [(0.1, "0.1"), (0.25, "0.25"), (1.0, "1"), (0.0, "0"), (0.00005, "0.00005"), (0.1234567, "0.1234567")],
)
def test_a_threshold_is_told_with_all_its_digits(threshold, text):
    assert format_threshold(threshold) == text


def test_a_verdict_of_other_maps_is_told_as_such():
    judged = BoxJudgement(dict.fromkeys(MEASURED_CONDITIONS, Fraction(1, 2)), ["anatomy"])
    assert judged.agrees(CONDITION_BITS["anatomy"] | CONDITION_BITS["zero_area"])
    assert not judged.agrees(0)
    assert not judged.agrees(CONDITION_BITS["anatomy"] | CONDITION_BITS["size"])
    assert BoxJudgement(judged.values, []).agrees(CONDITION_BITS["empty_after_refine"])
