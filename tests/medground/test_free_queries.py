"""Stage II on queries in free words: those that fit their answer pass, the others are rejected (T8)."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from cxr.medground.logic.decide import Decider
from cxr.medground.logic.scene import ClassWords, Scene
from cxr.medground.verification.text_rules import allowed_words, check_text
from medground_scenes import NUMBERS

SUPPORT = Path(__file__).parents[1] / "support"
CASES = yaml.safe_load((SUPPORT / "medground_free.yaml").read_text(encoding="utf-8"))
MORE = yaml.safe_load((SUPPORT / "medground_free_more.yaml").read_text(encoding="utf-8"))
DARK, BRIGHT = -2.0, 2.0


def scene(rows, classes, **more) -> Scene:
    """Return a scene of (class, cx, cy, share of the picture, elongation, contrast, distance to the edge)."""
    label, cx, cy, share, long, contrast, gap = (list(column) for column in zip(*rows, strict=True))
    ones = np.ones(len(rows))
    return Scene(
        label=label, area=np.array(share) * 1e5, area_ratio=np.array(share), cx=np.array(cx), cy=np.array(cy),
        elongation=np.array(long), solidity=0.97 * ones, contrast=np.array(contrast), texture=ones,
        edge_gap=np.array(gap), candidate=ones > 0, classes=classes, within={}, **more,
    )  # fmt: skip


CELLS = scene(
    [
        ("n", 0.15, 0.15, 0.012, 0.05, DARK, 0.1), ("n", 0.85, 0.2, 0.016, 0.05, BRIGHT, 0.1),
        ("n", 0.5, 0.5, 0.07, 0.37, DARK, 0.3), ("r", 0.2, 0.8, 0.012, 0.7, BRIGHT, 0.1),
        ("r", 0.8, 0.9, 0.012, 0.7, DARK, 0.0), ("n", 0.3, 0.42, 0.003, 0.05, BRIGHT, 0.3),
    ],
    {"n": ClassWords("nucleus", "nuclei", {"cell": "cells"}), "r": ClassWords("rod", "rods", {"cell": "cells"})},
    domain="nuclei",
)  # fmt: skip
CHEST = scene(
    [
        ("c", 0.25, 0.3, 0.02, 0.3, np.nan, 0.1), ("o", 0.75, 0.75, 0.02, 0.3, np.nan, 0.1),
        ("h", 0.55, 0.65, 0.09, 0.3, np.nan, 0.2),
    ],
    {
        "c": ClassWords("consolidation", "consolidations", {"finding": "findings"}),
        "o": ClassWords("opacity", "opacities", {"finding": "findings"}), "h": ClassWords("heart", "hearts"),
    },
    domain="cxr", radiological=True, zones=("right upper zone lung", "left upper zone lung", "left lung base",
    "right lung base"), shares=np.array([[0.9, 0, 0, 0.1], [0, 0, 0.9, 0], [0, 0, 0.2, 0.1]]),
)  # fmt: skip
RODS = scene(
    [
        ("b", 0.12, 0.18, 0.010, 0.75, BRIGHT, 0.1), ("b", 0.88, 0.2, 0.022, 0.72, BRIGHT, 0.1),
        ("b", 0.5, 0.5, 0.045, 0.1, DARK, 0.3), ("b", 0.18, 0.8, 0.003, 0.1, DARK, 0.1),
        ("b", 0.82, 0.78, 0.011, 0.38, BRIGHT, 0.0), ("b", 0.5, 0.12, 0.012, 0.74, DARK, 0.1),
        ("b", 0.52, 0.88, 0.2, 0.37, BRIGHT, 0.0),
    ],
    {"b": ClassWords("bacterium", "bacteria", {"cell": "cells"})},
    domain="bacteria",
)  # fmt: skip
BIRTH = scene(
    [("s", 0.25, 0.3, 0.02, 0.6, BRIGHT, 0.1), ("f", 0.65, 0.6, 0.25, 0.15, DARK, 0.1)],
    {"s": ClassWords("pubic symphysis", "pubic symphyses"), "f": ClassWords("fetal head", "fetal heads")},
    domain="ultrasound",
)
SCENES = {name: Decider(made, NUMBERS) for name, made in
          (("cells", CELLS), ("chest", CHEST), ("rods", RODS), ("birth", BIRTH))}  # fmt: skip
OLD = [(name, *case) for name, cases in CASES.items() for case in cases]
LOOKED_AT, APART = ([(name, *case) for name, cases in MORE.items() for case in cases[first::2]] for first in (0, 1))
ROWS = [*OLD, *LOOKED_AT, *APART]


def outcome(name, text, answer):
    decider = SCENES[name]
    return check_text(text, answer, decider, allowed_words(decider, []))[0]


def test_free_queries_come_out_as_expected():
    wrong = [(text, answer, fault) for name, text, answer, agree in ROWS
             if ((fault := outcome(name, text, answer)) is None) != agree]  # fmt: skip
    true = [row for row in ROWS if row[3]]
    rejected = sum(outcome(*row[:3]) is not None for row in true)
    accepted = sum(outcome(*row[:3]) is None for row in ROWS if not row[3])
    assert len(ROWS) >= 150
    assert len(wrong) <= 0.1 * len(ROWS), wrong
    assert rejected <= 0.05 * len(true), wrong
    assert accepted <= 0.05 * (len(ROWS) - len(true)), wrong


@pytest.mark.parametrize("name", CASES)
def test_a_reader_that_reads_nothing_would_fail(name):
    """Sabotage: with every text empty, all the false ones would be accepted."""
    false = [row for row in OLD if row[0] == name and not row[3]]
    assert all(outcome(name, "Look at this picture", row[2]) is None for row in false)
