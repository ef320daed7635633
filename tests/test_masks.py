"""The masks stage on constructed chests: what is segmented, grounded, named, asked for, and left for negatives."""

import hashlib
import json
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ils.core.labels import LESIONS, LOBE_ZONES, SIDES, VALID_LOCATIONS, ZONE_LEVELS
from ils.core.settings import Settings
from ils.core.store import Shard, StoreError, read_table, write_excluded
from ils.masks import algorithm, refine, stage, sweep, thresholds
from ils.masks.findings import finding
from ils.masks.grounding import names
from ils.masks.options import Rules
from masks_shard import outputs, said, write_inputs

SIZE = 64
LUNG_ROWS, ZONE_ROWS = (4, 60), 14
COLUMNS = {"right": (4, 28), "left": (36, 60)}
TAUS = {"ano": 0.1, "anatomy": 0.04, "conf": 0.2, "signal": 0.2, "size": 0.04}
RULES = {
    "denoise": "both",
    "min_component_px": 4,
    "grow_tolerance": 10,
    "grow_px": 0,
    "effusion_fill_share": 0.25,
    "opposite_lung": "cut",
    "ground_min_px": 4,
    "ground_min_share": 0.05,
    "name_min_share": 0.10,
    "weak_hedges": "tentative",
    "global_requires_definitive": True,
    "predicted_other": "strict",
    "blocking": "strict",
    "kinds": "strict",
    "joint_location": "strict",
    "one_answer": "strict",
}
R_BASE, L_BASE = "right lung base", "left lung base"


def chest() -> dict[str, np.ndarray]:
    """Two rectangular lungs of 56 x 24 pixels, each cut into four zones of 14 rows; lobes are unions of zones."""
    masks = {}
    for side in SIDES:
        for number, level in enumerate(ZONE_LEVELS):
            zone = np.zeros((SIZE, SIZE), bool)
            zone[LUNG_ROWS[0] + ZONE_ROWS * number :][:ZONE_ROWS, slice(*COLUMNS[side])] = True
            masks[f"{side} {level}"] = zone
        masks[f"{side} lung"] = np.logical_or.reduce([masks[f"{side} {level}"] for level in ZONE_LEVELS])
    for lobe, parts in LOBE_ZONES.items():
        masks[lobe] = np.logical_or.reduce([masks[part] for part in parts])
    return masks


def heart() -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[40:56, 24:44] = True
    return mask


def blob(zone: str, *, rows: int = 10, columns: int = 16, down: int = 2) -> tuple[int, int, int, int]:
    """A rectangle (x1, y1, x2, y2) inside a zone, 10 x 16 pixels unless told."""
    side = zone.split()[0]
    top = LUNG_ROWS[0] + ZONE_ROWS * ZONE_LEVELS.index(zone.removeprefix(f"{side} ")) + down
    left = COLUMNS[side][0] + 4
    return left, top, left + columns, top + rows


def study(name, tuples, blobs, *, boxes=None, **more) -> dict:
    """A study whose anomaly map holds the blobs; each has a box of its own unless boxes are given."""
    anomaly = np.zeros((SIZE, SIZE), np.uint8)
    for x1, y1, x2, y2 in blobs:
        anomaly[y1:y2, x1:x2] = 60
    return {
        "study_id": name,
        "image_id": f"i-{name}",
        "zones": chest(),
        "heart": heart(),
        "anomaly": anomaly,
        "image": np.full((SIZE, SIZE), 100, np.uint8),
        "boxes": [(*box, 0.9) for box in (blobs if boxes is None else boxes)],
        "tuples": tuples,
    } | more


@dataclass
class Result:
    """The stage's tables as lists of dicts, and its masks."""

    folder: Path
    findings: list[dict] = field(default_factory=list)
    units: list[dict] = field(default_factory=list)
    studies: list[dict] = field(default_factory=list)
    excluded: list[dict] = field(default_factory=list)

    def mask(self, row: dict) -> np.ndarray:
        with Shard(self.folder / "00.h5", key="mask_id") as shard:
            return shard.get("mask", row["mask_id"])

    def basics(self) -> list[dict]:
        return [unit for unit in self.units if unit["kind"] == "basic"]

    def globals(self) -> dict[str, dict]:
        return {unit["target"]: unit for unit in self.units if unit["kind"] == "global"}

    def made(self) -> list[tuple]:
        """(kind, word, location) of the units that make a pair."""
        return [(unit["kind"], unit["word"], unit["location"]) for unit in self.units if unit["dropped"] is None]


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the stage on studies under rules that differ from RULES as told."""
    number = iter(range(100))

    def once(*studies: dict, edit=None, taus=None, **rules) -> Result:
        folder = tmp_path / str(next(number))
        inputs, made = write_inputs(folder / "in", list(studies)), outputs(folder)
        if edit:
            edit(inputs)
        chosen = taus or {"general": TAUS, "edema": TAUS}
        options = stage.Options(**(RULES | rules), thresholds=chosen)
        stage.run_shard(**inputs, **made, options=options, attrs={"stage": "masks"}, threads=1)
        names_ = ("findings", "units", "studies", "excluded")
        return Result(folder, **{name: read_table(made[name]).to_dicts() for name in names_})

    return once


def rectangle(x1, y1, x2, y2) -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[y1:y2, x1:x2] = True
    return mask


# --- thresholds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "level"), [(0.10, 26), (0.05, 13), (0.01, 3), (0.005, 2), (0.0, 0), (1.0, 255), (0.2, 51), (0.6, 153)]
)
def test_levels_of_the_specification(share, level):
    assert thresholds.level(share) == level


def test_halves_are_those_of_table_8():
    sets = Settings().thresholds.sets
    assert thresholds.halves(sets["default"].model_dump()) == sets["half"].model_dump()


def test_only_edema_has_thresholds_of_its_own():
    chosen = thresholds.ThresholdSet.of(Settings().thresholds.sets["default"].model_dump())
    assert [chosen.for_target(lesion).level for lesion in LESIONS] == [26, 26, 26, 26, 26, 3, 26]
    assert chosen.smallest_level == 3


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.7, 1 / 3, 0.1 + 0.2])
def test_ratios_are_compared_without_rounding(share):
    """Every part of every whole up to 60, against fractions; times 4096 the products of the last two exceed 64 bits."""
    part, whole = np.mgrid[:61, :61]
    expected = [[w > 0 and Fraction(int(p), int(w)) >= thresholds.exact(share) for w in range(61)] for p in range(61)]
    assert thresholds.at_least(part, whole, thresholds.exact(share)).tolist() == expected
    assert thresholds.at_least(part * 4096, whole * 4096, thresholds.exact(share)).tolist() == expected
    huge = np.array([2**18])
    assert not thresholds.at_least(huge - 1, huge, Fraction(1)).any()


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


def test_opening_takes_what_holds_no_cross_and_erodes_from_the_border():
    binary = np.zeros((6, 8), np.uint8)
    binary[0:3, 0:3] = 1  # holds a cross
    binary[5, 5:8] = 1  # one row on the border: outside is background
    binary[1, 6] = 1
    assert np.argwhere(algorithm.opened(binary)).tolist() == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]


def test_each_condition_fails_alone_and_a_tie_holds(run):
    """One zone of 336 px; every threshold is met exactly, then missed by the next decimal."""
    x1, y1, x2, _ = box = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1, x2, y1 + 5)], boxes=[box])
    exact = {"ano": 0.2, "anatomy": 0.476190476190476, "conf": 0.9, "signal": 0.475, "size": 0.119047619047619}
    made["anomaly"][made["anomaly"] > 0] = 51  # 51 / 255 = 0.2

    def verdict(**taus):
        return run(made, taus={"general": exact | taus, "edema": TAUS}).findings[0]["box_verdicts"]

    # 160 / 336 and 160 / 1344 cut to 15 digits; 80 px of signal less four corners opened away: 76 of 160
    assert verdict() == [0]
    assert verdict(anatomy=0.47619047619047622) == [1]
    assert verdict(conf=0.91) == [2]
    assert verdict(signal=0.4750001) == [4]
    assert verdict(size=0.11904761904761905) == [8]
    assert verdict(ano=0.2001) == [4]
    assert verdict(ano=0.2001, conf=1.0) == [6]


def test_denoise_decides_what_c3_counts(run):
    x1, y1, x2, _ = box = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1, x2, y1 + 5)], boxes=[box])
    taus = {"general": TAUS | {"signal": 0.48}, "edema": TAUS}  # 80 of 160 before opening, 76 after
    assert run(made, taus=taus).findings[0]["reason"] == "no_productive_box"
    both = run(made, taus=taus, denoise="components_only")
    assert both.findings[0]["reason"] is None
    assert both.findings[0]["area"] == 76


def test_a_component_is_taken_whole_also_outside_its_box(run):
    x1, y1, x2, y2 = blob(R_BASE)
    made = study("s1", [said(labels=[R_BASE])], [(x1, y1 - 20, x2, y2)], boxes=[(x1, y1, x2, y2)])
    row = run(made).findings[0]
    assert row["area"] == 30 * 16 - 4
    assert row["share_outside"] == pytest.approx((18 * 16 - 2) / 476)


def test_boxes_outside_the_frame_without_area_or_with_nan(run):
    box = blob(R_BASE)
    wild = [(-50, -50, -3, -3), (20, 20, 20, 40), (np.nan, 0, 9, 9), (500, 500, 900, 900), box]
    row = run(study("s1", [said(labels=[R_BASE])], [box], boxes=wild)).findings[0]
    assert [bool(v & 16) for v in row["box_verdicts"]] == [True, True, True, True, False]
    assert (row["productive_boxes"], row["area"]) == (1, 156)


def test_a_box_of_an_excluded_class_is_no_box(run):
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)], kept=[False])
    row = run(made).findings[0]
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
def test_every_finding_without_a_grounded_mask_has_a_reason(run, labels, blobs, rules, reason):
    row = run(study("s1", [said(labels=labels)], [blob(zone) for zone in blobs]), **rules).findings[0]
    assert row["reason"] == reason
    assert (row["mask_id"] is None) == (reason in ("no_labels", "no_productive_box", "empty_after_refine"))


def test_labels_with_empty_masks_have_no_anatomy(run):
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)])
    made["zones"][R_BASE] = np.zeros((SIZE, SIZE), bool)
    result = run(made)
    assert result.findings[0]["reason"] == "no_anatomy"
    assert {"right lung", R_BASE} <= set(result.studies[0]["blocked"])


# --- refinement ----------------------------------------------------------------------------------------------------


def test_growth_follows_the_ungrown_mean_step_by_step():
    """A row of greys: growth reaches what is within 10 of the first mean, and no further than its steps."""
    image = np.array([[100, 100, 110, 110, 111, 110]], np.uint8)
    start = np.array([[1, 1, 0, 0, 0, 0]], np.uint8)
    lungs = np.ones_like(start)
    assert refine.grow(start, image, lungs, 10, 5).tolist() == [[1, 1, 1, 1, 0, 0]]
    assert refine.grow(start, image, lungs, 10, 1).tolist() == [[1, 1, 1, 0, 0, 0]]
    assert refine.grow(start, image, lungs, 11, 5).tolist() == [[1, 1, 1, 1, 1, 1]]
    assert refine.grow(start, image, np.array([[0, 0, 0, 1, 1, 1]], np.uint8), 11, 5).tolist() == start.tolist()


@pytest.mark.parametrize(("share", "rows"), [(0.0, 0), (0.15, 8), (0.25, 14), (1.0, 56)])
def test_the_lowest_part_is_measured_in_height(share, rows):
    lung = chest()["right lung"].astype(np.uint8)
    part = refine.lowest(lung, thresholds.exact(share))
    assert part.sum() == rows * 24
    assert not rows or part[60 - rows :].sum() == part.sum()


EFFUSION = {"entity": "effusion", "lesion": "effusion", "category": "pleura"}


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
def test_an_effusion_is_filled_down_to_its_base(run, more, filled):
    result = run(study("s1", [said(labels=[R_BASE], **(EFFUSION | more))], [blob(R_BASE, rows=4, down=0)]))
    mask = result.mask(result.findings[0])
    floor = mask[46:60, 4:28].sum()  # 0.25 of 56 rows is the base, 14 x 24
    assert floor == (336 if filled else 60)
    assert mask.sum() == floor


def test_an_effusion_fills_only_the_side_it_is_grounded_on(run):
    result = run(study("s1", [said(labels=[R_BASE, L_BASE], **EFFUSION)], [blob(R_BASE)]))
    row = result.findings[0]
    assert row["grounded"] == [R_BASE]
    assert not result.mask(row)[:, 32:].any()


def across() -> tuple[int, int, int, int]:
    """A band from the right base over the middle into the left one."""
    return 10, 50, 50, 56


@pytest.mark.parametrize(
    ("labels", "opposite", "columns"),
    [([R_BASE], "cut", (10, 36)), ([R_BASE], "keep", (10, 50)), ([R_BASE, L_BASE], "cut", (10, 50))],
)
def test_a_component_is_cut_off_in_the_lung_without_a_productive_box(run, labels, opposite, columns):
    made = study("s1", [said(labels=labels)], [across()], boxes=[(8, 48, 40, 60)])
    result = run(made, opposite_lung=opposite)
    mask = result.mask(result.findings[0])
    assert (np.flatnonzero(mask.any(axis=0))[[0, -1]] + [0, 1]).tolist() == list(columns)


def test_a_component_wholly_in_the_other_lung_makes_no_box_productive(run):
    box = (20, 46, 50, 60)  # reaches the left base
    made = study("s1", [said(labels=[R_BASE])], [blob(L_BASE)], boxes=[box])
    assert run(made).findings[0]["reason"] == "empty_after_refine"
    kept = run(made, opposite_lung="keep").findings[0]
    assert kept["reason"] == "no_grounded_label"


def test_a_side_closes_when_its_only_box_is_left_with_nothing(run):
    """tau_anatomy 0 lets in a box that meets no label: once the right base has no productive box, it goes, too."""
    upper, wide = blob("right upper zone lung"), (20, 46, 50, 60)
    made = study("s1", [said(labels=[R_BASE])], [upper, blob(L_BASE)], boxes=[upper, wide])
    row = run(made, taus={"general": TAUS | {"anatomy": 0.0}, "edema": TAUS}).findings[0]
    assert (row["reason"], row["box_verdicts"]) == ("empty_after_refine", [32, 32])


# --- grounding and names -------------------------------------------------------------------------------------------


def test_a_label_must_hold_its_share_of_the_mask(run):
    """Left base: 8 x 8 less four corners, 60 of 216 pixels."""
    blobs = [blob(R_BASE), blob(L_BASE, rows=8, columns=8)]
    made = study("s1", [said(labels=[R_BASE, L_BASE])], blobs)
    assert run(made, ground_min_share=0.277).findings[0]["grounded"] == [R_BASE, L_BASE]
    assert run(made, ground_min_share=0.278).findings[0]["grounded"] == [R_BASE]


def test_a_lobe_is_named_by_the_zones_that_hold_enough(run):
    lobe = "lung lower lobe left"
    x1, y1, x2, y2 = blob(L_BASE)
    # rows 44 and 45 are mid zone, the rest base: (16 - 2 + 16) and (16 * 12 - 2) of 220 pixels
    made = study("s1", [said(labels=[lobe])], [(x1, y1 - 4, x2, y2)])
    assert run(made, name_min_share=0.13).findings[0]["named"] == ["left mid zone lung", L_BASE]
    row = run(made, name_min_share=0.14).findings[0]
    assert (row["named"], row["grounded"]) == ([L_BASE], [lobe])
    assert row["named_reported"] == ["left mid zone lung", L_BASE]


def test_names_are_in_the_order_of_table_9_without_zones_beside_their_lung():
    held = dict.fromkeys(VALID_LOCATIONS, 50)
    labels = ["left lung base", "left lung", "right mid zone lung", "lung upper lobe left", "right apical zone lung"]
    assert names(labels, held, 100, min_share=0.1) == ["left lung", "right apical zone lung", "right mid zone lung"]


def test_a_lobe_is_never_named_by_an_ungrounded_label(run):
    """The mid zone is reported and holds too little: the upper lobe that reaches into it must not name it."""
    mid, lobe = "left mid zone lung", "lung upper lobe left"
    blobs = [blob("left upper zone lung"), blob(mid, rows=5, columns=8)]
    made = study("s1", [said(labels=[mid, lobe])], blobs, boxes=[blobs[0]])
    made["anomaly"][30:34, 40:48] = 60  # joins both blobs
    result = run(made, ground_min_px=60)
    row = result.findings[0]
    assert (result.mask(row) & made["zones"][mid]).sum() == 7 * 8 - 2
    assert row["grounded"] == [lobe]
    assert row["named"] == ["left upper zone lung"]


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
def test_figure_11(run, shared, number):
    expected = example(shared, number)
    told, blobs, kinds, word, inference = FIGURE_11[number]
    result = run(study("s1", [told], [blob(zone) for zone in blobs]))
    assert [unit["kind"] for unit in result.units] == kinds
    for unit in result.units:
        assert unit["target"] == expected["target"]
        assert unit["certainty"] == expected["certainty"]
        assert unit["grounded_location"] == unit["location"] == expected["grounded"]
        assert sorted(unit["reported_location"]) == sorted(expected["reported"])
        assert unit["dropped"] is None
    assert (result.units[0]["word"], result.units[0]["inference"]) == (word, inference)


def test_figure_3(run):
    tuples = [
        said("atelectasis", [R_BASE, L_BASE], lesion="atelectasis"),
        said("cardiomegaly", lesion="cardiomegaly", category="heart", sentence=2),
    ]
    result = run(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
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


def test_predicted_other(run):
    """'Right basal opacity is a nipple shadow': no opacity may be asked for, and none denied there."""
    told = said(labels=[R_BASE], predicted_lesion_type="nipple shadow", candidates=["nipple shadow"])
    made = study("s1", [told], [blob(R_BASE)])
    strict, paper = run(made), run(made, predicted_other="paper")
    assert strict.units == []
    assert strict.findings[0]["reason"] == "predicted_other"
    assert R_BASE not in strict.studies[0]["empty"]
    assert strict.studies[0]["standing"] == [{"lesion": "opacity", "locations": ["right lung", R_BASE]}]
    assert paper.made()[0] == ("basic", "opacity", [R_BASE])


def test_blocking_of_a_retrocardiac_opacity(run):
    """'Retrocardiac opacity' has no zone label: a negative at the left base would contradict it."""
    told = said(location=["retrocardiac"], category="lateral view location")
    for block in ([], ["left lung", L_BASE]):
        made = study("s1", [told | {"block": block}], [])
        strict, paper = run(made).studies[0], run(made, blocking="paper").studies[0]
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
def test_blocking_by_side(run, more, sides):
    blocked = run(study("s1", [said(**more)], [])).studies[0]["blocked"]
    assert blocked == [place for place in VALID_LOCATIONS if place.split()[0] in sides]


def test_blocking_by_the_section_that_was_not_used(run):
    """The impression adds a right basal pneumonia: no pair is made of it, no negative may deny it."""
    more = {"line": {"other_tuples": [said("pneumonia", [R_BASE], lesion="pneumonia")]}}
    made = study("s1", [said("effusion", presence="negative")], [blob(R_BASE)], **more)
    strict, paper = run(made), run(made, blocking="paper")
    assert strict.units == strict.findings == []
    assert "right lung" not in strict.studies[0]["empty"]
    assert strict.studies[0]["standing"] == [{"lesion": "pneumonia", "locations": ["right lung", R_BASE]}]
    assert paper.studies[0]["empty"] == list(VALID_LOCATIONS)


def test_blocking_of_the_lung_around_an_empty_zone_mask(run):
    """'Right apical opacity', but the apex mask is empty, and so overlaps nothing."""
    apex = "right apical zone lung"
    made = study("s1", [said(labels=[apex])], [])
    made["zones"][apex] = np.zeros((SIZE, SIZE), bool)
    strict, paper = run(made).studies[0], run(made, blocking="paper").studies[0]
    assert strict["blocked"] == ["right lung", apex]
    assert {"right lung", apex}.isdisjoint(strict["empty"])
    assert {"right lung", apex} <= set(paper["empty"])


def test_blocking_of_the_lung_that_a_zone_belongs_to_by_name(run):
    """Masks made one by one need not nest: a base outside its lung mask still lies in that lung."""
    made = study("s1", [said(labels=[L_BASE])], [])
    made["zones"]["left lung"] = made["zones"]["left lung"] & ~made["zones"][L_BASE]
    assert "left lung" not in run(made).studies[0]["empty"]
    assert "left lung" in run(made, blocking="paper").studies[0]["empty"]


def test_a_location_without_pixels_is_never_called_empty(run):
    made = study("s1", [], [])
    made["zones"][L_BASE] = np.zeros((SIZE, SIZE), bool)
    assert L_BASE not in run(made).studies[0]["empty"]


def test_kinds_stand_against_negatives_of_what_contains_them(run):
    """'Right basal pneumonia': 'there is no consolidation in the right lung base' would contradict it."""
    made = study("s1", [said("pneumonia", [R_BASE], lesion="pneumonia")], [])
    strict = {row["lesion"]: row for row in run(made).studies[0]["lesion_blocked"]}
    paper = {row["lesion"]: row for row in run(made, kinds="paper").studies[0]["lesion_blocked"]}
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


def test_kinds_of_a_tentative_effusion(run):
    """It is asked for as an opacity: to deny an opacity beside it would contradict that."""
    made = study("s1", [said(labels=[L_BASE], certainty="tentative", **EFFUSION)], [blob(L_BASE)])
    strict, paper = run(made), run(made, kinds="paper")
    assert strict.made() == [("basic", "opacity", [L_BASE])]
    assert [row["lesion"] for row in strict.studies[0]["standing"]] == ["opacity", "effusion"]
    assert [row["lesion"] for row in paper.studies[0]["standing"]] == ["effusion"]


def test_kinds_under_opacity_belong_to_its_global(run):
    """'Right basal opacity. Left basal consolidation.': 'Segment the opacity.' must cover both."""
    tuples = [said(labels=[R_BASE]), said("consolidation", [L_BASE], lesion="consolidation", sentence=2)]
    made = study("s1", tuples, [blob(R_BASE), blob(L_BASE)])
    strict, paper = run(made), run(made, kinds="paper")
    unit = strict.globals()["opacity"]
    assert (unit["location"], unit["finding"], unit["sentence_index"]) == ([R_BASE, L_BASE], [0, 1], 1)
    assert np.array_equal(strict.mask(unit), strict.mask(strict.findings[0]) | strict.mask(strict.findings[1]))
    assert strict.globals()["consolidation"]["location"] == [L_BASE]
    assert paper.globals()["opacity"]["location"] == [R_BASE]


def test_kinds_under_opacity_that_are_not_grounded_prevent_its_global(run):
    tuples = [said(labels=[R_BASE]), said("consolidation", [L_BASE], lesion="consolidation")]
    made = study("s1", tuples, [blob(R_BASE)])
    assert set(run(made).globals()) == set()
    assert set(run(made, kinds="paper").globals()) == {"opacity"}


def test_a_global_needs_a_finding_of_the_type_itself(run):
    made = study("s1", [said("edema", [R_BASE], lesion="edema")], [blob(R_BASE)])
    assert set(run(made).globals()) == {"edema"}


def test_related_terms(run):
    """Vascular congestion stands beside edema: no negative of edema, nor of what contains it, as a whole."""
    more = {"related": "edema", "lesion": None, "category": "vessels"}
    row = run(study("s1", [said("vascular congestion", **more)], [])).studies[0]
    assert row["related"] == ["edema"]
    assert [one["lesion"] for one in row["lesion_blocked"] if one["global_blocked"]] == [
        "opacity",
        "consolidation",
        "edema",
    ]
    assert row["empty"] == list(VALID_LOCATIONS)


def test_joint_location_of_a_grounded_sibling(run):
    """'Opacity in the right lung. Consolidation at the right base.': the consolidation is an opacity, too."""
    tuples = [said(labels=["right lung"]), said("consolidation", [R_BASE], lesion="consolidation")]
    blobs = [blob("right upper zone lung"), blob(R_BASE)]
    made = study("s1", tuples, blobs, boxes=[blobs[0], blobs[1]])
    taus = {"general": TAUS | {"anatomy": 0.2}, "edema": TAUS}
    made["boxes"][0] = (4, 14, 28, 40, 0.9)  # fits the right lung, not the base
    strict, paper = run(made, taus=taus), run(made, taus=taus, joint_location="paper")
    first, second = strict.basics()
    assert (first["word"], first["finding"], first["location"]) == ("opacity", [0, 1], ["right lung"])
    assert strict.mask(first).sum() == 2 * 156
    assert (second["word"], second["finding"]) == ("consolidation", [1])
    assert strict.mask(second).sum() == 156
    assert paper.mask(paper.basics()[0]).sum() == 156


@pytest.mark.parametrize(("lesion", "why"), [("pneumonia", "several_types"), ("consolidation", None)])
def test_joint_location_and_lesion_inference(run, lesion, why):
    """'Possible atelectasis of the right lung. Right basal pneumonia.': the opacity there is not of one type."""
    tuples = [said("atelectasis", ["right lung"], lesion="atelectasis", certainty="tentative")]
    tuples.append(said(lesion, [R_BASE], lesion=lesion))
    made = study("s1", tuples, [blob("right upper zone lung"), blob(R_BASE)], boxes=[(4, 14, 28, 40), blob(R_BASE)])
    unit = run(made, taus={"general": TAUS | {"anatomy": 0.2}, "edema": TAUS}).basics()[0]
    assert (unit["word"], unit["finding"]) == ("opacity", [0, 1])
    assert (unit["inference"], unit["inference_dropped"]) == (why is None, why)


def test_joint_location_of_an_ungrounded_sibling(run):
    """The consolidation at the base is not found: no mask answers 'the opacity in the right lung'."""
    tuples = [said(labels=["right lung"]), said("consolidation", [R_BASE], lesion="consolidation")]
    made = study("s1", tuples, [blob("right upper zone lung")], boxes=[(4, 14, 28, 40)])
    strict, paper = run(made), run(made, joint_location="paper")
    assert [(unit["dropped"], unit["mask_id"]) for unit in strict.basics()] == [("ungrounded_sibling", None)]
    assert ("basic", "opacity", ["right lung"]) in paper.made()


def test_joint_location_takes_the_part_inside(run):
    """'Opacity at the right base. Bibasilar atelectasis.': only the right half of the latter lies in the location."""
    tuples = [said(labels=[R_BASE]), said("atelectasis", [R_BASE, L_BASE], lesion="atelectasis")]
    result = run(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
    first, second = result.basics()
    assert first["location"] == [R_BASE]
    assert not result.mask(first)[:, 32:].any()
    assert second["location"] == [R_BASE, L_BASE]
    assert result.mask(second)[:, 32:].any()


def test_joint_location_of_a_finding_without_labels(run):
    """'Left basal consolidation. Retrocardiac consolidation.': the second may lie there and is not shown."""
    told = said("consolidation", lesion="consolidation", location=["retrocardiac"], category="lateral view location")
    made = study("s1", [said("consolidation", [L_BASE], lesion="consolidation"), told], [blob(L_BASE)])
    assert run(made).made() == []
    assert run(made, joint_location="paper").made() == [("basic", "consolidation", [L_BASE])]


def test_one_answer_of_equal_instructions(run):
    """Two tentative findings at one place are one 'opacity in the right lung base': one pair, no twin."""
    tuples = [
        said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative"),
        said("pneumonia", [R_BASE], lesion="pneumonia", certainty="tentative", sentence=2),
    ]
    made = study("s1", tuples, [blob(R_BASE)])
    strict, paper = run(made), run(made, one_answer="paper")
    assert strict.made() == [("basic", "opacity", [R_BASE])]
    assert strict.basics()[0]["finding"] == [0, 1]
    assert (strict.basics()[0]["inference"], strict.basics()[0]["inference_dropped"]) == (False, "several_types")
    assert len(paper.made()) == 2


def test_one_answer_falls_if_one_of_its_findings_does(run):
    """The first opacity also lies in a lobe that is not found, which could be the base the second one is asked at."""
    lobe = "lung lower lobe right"
    made = study("s1", [said(labels=[R_BASE, lobe]), said(labels=[R_BASE])], [blob(R_BASE)])
    made["zones"][lobe] = np.zeros((SIZE, SIZE), bool)
    strict = run(made)
    assert strict.made() == []
    assert [(unit["finding"], unit["dropped"]) for unit in strict.basics()] == [([0, 1], "ungrounded_sibling")]


def test_one_answer_of_lesion_inference(run):
    """Definite atelectasis and pneumonia at one base: 'the opacity there' cannot be highly suggestive of both."""
    tuples = [said("atelectasis", [R_BASE], lesion="atelectasis"), said("pneumonia", [R_BASE], lesion="pneumonia")]
    made = study("s1", tuples, [blob(R_BASE)])
    strict, paper = run(made).basics(), run(made, one_answer="paper").basics()
    assert [(unit["inference"], unit["inference_dropped"]) for unit in strict] == [(False, "conflicting_answer")] * 2
    assert [unit["dropped"] for unit in strict] == [None, None]
    assert [unit["inference"] for unit in paper] == [True, True]


def test_one_answer_of_one_type_with_two_certainties(run):
    tuples = [
        said("atelectasis", [R_BASE], lesion="atelectasis"),
        said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative"),
    ]
    units = run(study("s1", tuples, [blob(R_BASE)])).basics()
    assert [(unit["word"], unit["inference"]) for unit in units] == [("atelectasis", False), ("opacity", False)]


# --- certainty, candidates, hedges -----------------------------------------------------------------------------------


def test_several_candidates(run):
    """'Right basal opacity, atelectasis or pneumonia': target opacity, no twin, and neither may be denied."""
    told = said(labels=[R_BASE], certainty="tentative", candidates=["atelectasis", "pneumonia"])
    result = run(study("s1", [told], [blob(R_BASE)]))
    unit = result.basics()[0]
    assert (unit["target"], unit["inference"]) == ("opacity", False)
    assert [row["lesion"] for row in result.studies[0]["standing"]] == ["pneumonia", "atelectasis", "opacity"]
    own = said("atelectasis", [R_BASE], lesion="atelectasis", certainty="tentative", candidates=["pneumonia", "edema"])
    unit = run(study("s1", [own], [blob(R_BASE)])).basics()[0]
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
        ("opacity", None, ["scar", "atelectasis"], "opacity", None),
        ("opacity", ["atelectasis", "pneumonia"], None, "opacity", None),
    ],
)
def test_targets(own, predicted, candidates, target, reason):
    made = finding(0, said(lesion=own, predicted_lesion_type=predicted, candidates=candidates), Rules(**RULES))
    assert (made.target, made.reason) == (target, reason)


def test_a_tentative_finding_is_called_an_opacity_and_prevents_its_global(run):
    told = said("edema", [R_BASE], lesion="edema", certainty="tentative")
    made = study("s1", [told], [blob(R_BASE)])
    assert run(made).made() == [("basic", "opacity", [R_BASE])]
    loose = run(made, global_requires_definitive=False)
    assert loose.globals()["edema"]["certainty"] == "tentative"


def test_a_global_needs_every_label_grounded(run):
    made = study("s1", [said("edema", [R_BASE, L_BASE], lesion="edema")], [blob(R_BASE)])
    assert run(made).made() == [("basic", "edema", [R_BASE])]


def test_weak_hedges_only_block_if_asked(run):
    told = said("pneumonia", [R_BASE], lesion="pneumonia", certainty="tentative", hedge="weak")
    made = study("s1", [told], [blob(R_BASE)])
    assert run(made).made() == [("basic", "opacity", [R_BASE])]
    blocked = run(made, weak_hedges="block_only")
    assert blocked.units == []
    assert blocked.findings[0]["reason"] == "weak_hedge"
    assert R_BASE not in blocked.studies[0]["empty"]
    assert blocked.studies[0]["lesion_blocked"][1]["anywhere"]


HEART = {"entity": "cardiomegaly", "lesion": "cardiomegaly", "category": "heart"}


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
def test_cardiomegaly(run, more, positive):
    result = run(study("s1", [said(**(HEART | more))], []))
    assert result.made() == ([("global", "cardiomegaly", ["heart"])] if positive else [])
    stands = more.get("presence") != "negative"
    assert result.studies[0]["lesion_blocked"][0]["anywhere"] == stands
    assert result.studies[0]["empty"] == list(VALID_LOCATIONS)


def test_cardiomegaly_without_a_heart_mask(run):
    result = run(study("s1", [said(**HEART)], [], heart=np.zeros((SIZE, SIZE), bool)))
    assert result.units == []
    assert result.findings[0]["reason"] == "no_heart"
    assert result.studies[0]["ctr"] is None


# --- what negatives need ---------------------------------------------------------------------------------------------


def test_occupied_and_empty_locations(run):
    """A nodule in the left mid zone empties it and its lung; an opacity's mask also occupies the zone above."""
    x1, y1, x2, y2 = blob(R_BASE)
    tuples = [said(labels=[R_BASE]), said("nodule", ["left mid zone lung"], lesion=None)]
    row = run(study("s1", tuples, [(x1, y1 - 10, x2, y2)], boxes=[(x1, y1, x2, y2)])).studies[0]
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


def test_the_cardiothoracic_ratio_is_that_of_the_original_pixels(run):
    """Heart 20 of 56 columns, also where columns were scaled and shifted unlike rows."""
    assert run(study("s1", [], [])).studies[0]["ctr"] == pytest.approx(20 / 56)
    wide = np.array([[3.0, 0.0, -7.0], [0.0, 1.5, 0.0]])
    assert run(study("s1", [], [], to_original=wide)).studies[0]["ctr"] == pytest.approx(20 / 56)


def test_findings_that_share_their_mask_know_each_other(run):
    tuples = [
        said(labels=[R_BASE]),
        said("atelectasis", [R_BASE], lesion="atelectasis"),
        said("edema", [L_BASE], lesion="edema"),
        said(**HEART),
    ]
    result = run(study("s1", tuples, [blob(R_BASE), blob(L_BASE)]))
    assert [row["shared_with"] for row in result.findings] == [[1], [0], [], []]
    assert result.findings[0]["mask_id"] == result.findings[1]["mask_id"]


# --- files -----------------------------------------------------------------------------------------------------------


def random_study(number: int) -> dict:
    """A study with one to four random findings, blobs and boxes."""
    random = np.random.default_rng(number)
    zones = VALID_LOCATIONS[2:]
    blobs = [
        blob(zones[random.integers(8)], rows=int(random.integers(3, 12)), columns=int(random.integers(3, 20)))
        for _ in range(random.integers(0, 5))
    ]
    boxes = [np.array(one) + random.normal(0, 2, 4) for one in blobs]
    tuples = []
    for _ in range(random.integers(0, 5)):
        lesion = str(random.choice(LESIONS))
        labels = [str(label) for label in random.permutation([*VALID_LOCATIONS, *LOBE_ZONES])[: random.integers(0, 3)]]
        certainty = str(random.choice(["definitive", "definitive", "tentative"]))
        tuples.append(said(lesion, [] if lesion == "cardiomegaly" else labels, lesion=lesion, certainty=certainty))
    made = study(f"s{number:03d}", tuples, blobs, boxes=boxes, subject_id=f"p{number // 2}")
    made["boxes"] = [(*box[:4], float(random.uniform(0, 1))) for box in made["boxes"]]
    made["anomaly"] = np.maximum(made["anomaly"] - random.integers(0, 37, (SIZE, SIZE)), 0).astype(np.uint8)
    return made


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("00*"))}


def test_the_same_input_gives_the_same_bytes(run):
    studies = [random_study(number) for number in range(30)]
    first, second = run(*studies), run(*studies[::-1])
    assert files(first.folder) == files(second.folder)
    assert len(files(first.folder)) == 5
    assert first.units


def test_masks_and_rows_do_not_depend_on_the_shard(run):
    studies = [random_study(number) for number in range(20)]
    whole, parts = run(*studies), [run(*studies[:9]), run(*studies[9:])]
    for table in ("findings", "units", "studies"):
        assert getattr(whole, table) == [row for part in parts for row in getattr(part, table)]
    for part in parts:
        for row in part.units:
            if row["mask_id"]:
                assert np.array_equal(part.mask(row), whole.mask(row))


def test_masks_are_named_by_study_and_pixels_and_stored_once(run):
    result = run(*(random_study(number) for number in range(20)))
    with Shard(result.folder / "00.h5", key="mask_id") as shard:
        assert shard.ids == sorted(set(shard.ids))
        rows = [row for row in [*result.findings, *result.units] if row["mask_id"]]
        assert {row["mask_id"] for row in rows} == set(shard.ids)
        assert len(rows) > len(shard.ids) > 5
        for row in rows:
            mask = shard.get("mask", row["mask_id"])
            digest = hashlib.blake2b(row["study_id"].encode() + np.packbits(mask, axis=-1).tobytes()).hexdigest()
            assert row["mask_id"] == "m" + digest[:16]
            assert row["area"] == mask.sum() > 0


def test_every_image_is_accepted_and_those_excluded_before_are_not_asked(run):
    def edit(inputs):
        row = {"image_id": "i-s001", "study_id": "", "stage": "boxes", "reason": "engine_failure", "detail": ""}
        write_excluded(inputs["boxes_excluded"], [row])
        lines = Path(inputs["reports"]).read_text().splitlines()
        Path(inputs["reports"]).write_text("\n".join(line for line in lines if "s002" not in line) + "\n")

    result = run(*(random_study(number) for number in range(4)), edit=edit)
    assert [row["image_id"] for row in result.studies] == ["i-s000", "i-s003"]
    assert result.excluded == []


def test_a_shard_without_images(run):
    result = run()
    assert result.findings == result.units == result.studies == []
    with Shard(result.folder / "00.h5", key="mask_id") as shard:
        assert len(shard) == 0


def test_a_damaged_input_is_named(run):
    def edit(inputs):
        Path(inputs["anatomy"]).write_bytes(b"no HDF5")

    with pytest.raises(StoreError, match=r"anatomy\.h5 is missing or damaged"):
        run(random_study(1), edit=edit)


def test_no_unit_names_an_ungrounded_label_and_no_negative_place_meets_a_finding(run):
    """Invariants over random studies."""
    result = run(*(random_study(number) for number in range(100, 160)))
    zones = chest()
    by_study = {row["study_id"]: row for row in result.studies}
    assert sum(unit["dropped"] is None for unit in result.units) > 20
    for unit in result.units:
        rows = {row["finding"]: row for row in result.findings if row["study_id"] == unit["study_id"]}
        members = [rows[number] for number in unit["finding"]]
        ungrounded = {label for row in members for label in row["reported"]} - {
            x for row in members for x in row["grounded"]
        }
        if unit["kind"] == "basic" and len(members) == 1:
            assert not ungrounded & set(unit["location"])
        if unit["kind"] == "global":
            assert not ungrounded
            assert all(row["certainty"] == "definitive" for row in members) or unit["target"] == "cardiomegaly"
    for row in result.findings:
        places = [zones[place] for place in by_study[row["study_id"]]["empty"]]
        assert not any((zones[label] & place).any() for label in row["reported"] for place in places)
        if row["mask_id"] and row["target"] != "cardiomegaly":
            assert not any((result.mask(row) & place).any() for place in places)
    texts = [(u["study_id"], u["kind"], u["word"], tuple(u["location"])) for u in result.units if not u["dropped"]]
    assert len(texts) == len(set(texts))


# --- sweep -----------------------------------------------------------------------------------------------------------


def test_a_sweep_agrees_with_one_run_for_each_set(run, tmp_path):
    studies = [random_study(number) for number in range(40)]
    default = {name: chosen.model_dump() for name, chosen in Settings().thresholds.sets.items()}["default"]
    sets = {"table7": default, "half": thresholds.halves(default), "own": {"general": TAUS, "edema": TAUS}}
    sets["zero"] = {part: dict.fromkeys(TAUS, 0.0) for part in ("general", "edema")}
    sets["loose"] = {"general": TAUS | {"ano": 0.05}, "edema": TAUS | {"ano": 0.01, "conf": 0.0}}
    inputs = write_inputs(tmp_path / "sweep", studies)
    output = str(tmp_path / "sweep.parquet")
    sweep.run_shard(**inputs, output=output, options=sweep.Options(**RULES, sets=sets), attrs={}, threads=1)
    swept = read_table(output).to_dicts()
    assert {row["thresholds"] for row in swept} == set(sets)
    for name, chosen in sets.items():
        single = run(*studies, taus=chosen)
        expected = []
        for one in single.studies:
            rows = [row for row in single.findings if row["study_id"] == one["study_id"]]
            for lesion in LESIONS[1:]:
                found = [row for row in rows if row["target"] == lesion]
                grounded = [single.mask(row) for row in found if row["grounded"]]
                if found:
                    expected.append(
                        {
                            "thresholds": name,
                            **{key: one[key] for key in ("study_id", "image_id", "subject_id", "split")},
                            "lesion": lesion,
                            "findings": len(found),
                            "has_labels": any(row["reported"] for row in found),
                            "masks": sum(row["mask_id"] is not None for row in found),
                            "grounded": len(grounded),
                            "mask_px": int(np.logical_or.reduce(grounded).sum()) if grounded else 0,
                        }
                    )
        assert [row for row in swept if row["thresholds"] == name] == expected
    counts = {name: sum(row["grounded"] > 0 for row in swept if row["thresholds"] == name) for name in sets}
    assert counts["table7"] < counts["own"]
    assert counts["half"] >= counts["table7"]
