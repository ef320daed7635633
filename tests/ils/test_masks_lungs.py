"""The lungs of Algorithm 1 are the organs stage's, made on the image; locations are the anatomy's, on the edited image.

Every test has lungs unlike the zones, so that one in place of the other shows; tests/paper/test_masks_oracle.py too.
"""

import numpy as np
import pytest

from cxr.base.tables import read_table
from cxr.base.vocabulary import LUNGS, SIDES
from cxr.ils.masks import sweep
from cxr.ils.masks.settings import SweepSettings
from masks_chest import EFFUSION, L_BASE, R_BASE, TAUS, blob, chest, lungs_on_image, study
from masks_shard import RULES, said, write_inputs

SIDE = 512
"""Of a whole frame."""


def frame(*, lower: int) -> dict[str, np.ndarray | dict]:
    """Zones of a whole frame in bands of 90 rows from row 40 on, and the organs' lungs that many rows lower."""
    zones = {}
    for side, left in zip(SIDES, (60, 300), strict=True):
        for band, level in enumerate(("apical zone lung", "upper zone lung", "mid zone lung", "lung base")):
            zones[f"{side} {level}"] = np.zeros((SIDE, SIDE), bool)
            zones[f"{side} {level}"][40 + 90 * band : 130 + 90 * band, left : left + 150] = True
        zones[f"{side} lung"] = np.logical_or.reduce([mask for name, mask in zones.items() if name.startswith(side)])
    return {
        "zones": zones,
        "lungs": {lung: np.roll(zones[lung], lower, axis=0) for lung in LUNGS},
        "heart": np.zeros((SIDE, SIDE), bool),
        "image": np.full((SIDE, SIDE), 100, np.uint8),
    }


def test_the_chests_of_these_tests_tell_lungs_from_zones():
    for lung in LUNGS:
        assert not np.array_equal(chest()[lung], lungs_on_image()[lung])


@pytest.mark.parametrize("lower", [0, 40])
def test_an_effusion_fills_the_lowest_part_of_the_lung_on_the_image(segment, lower):
    """The lowest 15 % of 360 rows of a lung that ends at row 400, or 40 rows lower: 54 rows of 150 pixels."""
    anomaly = np.zeros((SIDE, SIDE), np.uint8)
    anomaly[320:350, 80:180] = 60
    made = study("s1", [said(labels=[R_BASE], **EFFUSION)], [], **frame(lower=lower), anomaly=anomaly)
    made["boxes"] = [(60, 310, 210, 400, 0.9)]
    row = (result := segment(made, effusion_fill_share=0.15)).findings[0]
    expected = np.zeros((SIDE, SIDE), bool)
    expected[320:350, 80:180] = True
    expected[320, [80, 179]] = expected[349, [80, 179]] = False  # opened
    expected[400 - 54 + lower : 400 + lower, 60:210] = True
    assert np.array_equal(result.mask(row), expected)


def test_the_fill_reaches_beyond_every_zone_and_anomalous_pixel(segment):
    """The lung on the image ends six rows below the zones: nothing else lies there."""
    lungs = lungs_on_image() | {"right lung": np.pad(np.ones((58, 24), bool), ((6, 0), (4, 36)))}
    row = (result := segment(study("s1", [said(labels=[R_BASE], **EFFUSION)], [blob(R_BASE)], lungs=lungs))).findings[0]
    assert result.mask(row)[64 - 14 :, 4:28].all()  # a quarter of 58 rows, cut


def test_c4_asks_the_lungs_on_the_image(segment):
    """A box of 160 px wholly in a zone's lung, half of it in that of the image."""
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)])
    shifted = {lung: np.roll(mask, -7, axis=0) for lung, mask in chest().items() if lung in LUNGS}  # rows 0 to 53
    made["lungs"] = shifted
    found = segment(made, taus={"general": TAUS | {"size": 0.05}, "edema": TAUS})
    assert (shifted["right lung"] & (made["anomaly"] > 0)).sum() == 16 * 5  # rows 48 to 52 of 48 to 57
    size = 80 / (160 + 53 * 24 - 80)
    assert found.findings[0]["box_verdicts"] == [0]
    above = segment(made, taus={"general": TAUS | {"size": size + 1e-9}, "edema": TAUS})
    assert above.findings[0]["box_verdicts"] == [8]


def test_growth_ends_where_the_lung_on_the_image_ends(segment):
    """The blob lies at rows 48 to 57; zones end with row 59, this lung with row 58."""
    lungs = {lung: mask & (np.arange(64)[:, None] < 59) for lung, mask in chest().items() if lung in LUNGS}
    row = (result := segment(study("s1", [said(labels=[R_BASE])], [blob(R_BASE)], lungs=lungs), grow_px=5)).findings[0]
    assert np.flatnonzero(result.mask(row).any(axis=1))[[0, -1]].tolist() == [43, 58]
    wide = {lung: np.roll(mask, 4, axis=0) for lung, mask in chest().items() if lung in LUNGS}  # to row 63
    row = (result := segment(study("s1", [said(labels=[R_BASE])], [blob(R_BASE)], lungs=wide), grow_px=5)).findings[0]
    assert np.flatnonzero(result.mask(row).any(axis=1))[[0, -1]].tolist() == [43, 62]


def test_the_opposite_lung_is_the_one_on_the_image(segment):
    """A band over both lungs is cut where the left lung of the image begins, not where its zones do."""
    lungs = {lung: np.roll(mask, 5 if "left" in lung else 0, axis=1) for lung, mask in chest().items() if lung in LUNGS}
    made = study("s1", [said(labels=[R_BASE])], [(10, 50, 50, 56)], boxes=[(8, 48, 40, 60)], lungs=lungs)
    row = (result := segment(made)).findings[0]
    assert np.flatnonzero(result.mask(row).any(axis=0))[[0, -1]].tolist() == [10, 40]


def test_what_a_lung_keeps_when_it_is_cut_is_measured_on_the_image(segment):
    """Of the component's 240 px, 36 (six rows, columns 4 to 9) lie in the right lung of the image: too few to stay."""
    lungs = lungs_on_image() | {"right lung": np.pad(np.ones((56, 6), bool), ((4, 4), (4, 54)))}
    made = study("s1", [said(labels=[R_BASE])], [(4, 50, 50, 56)], boxes=[(4, 48, 40, 60)], lungs=lungs)
    taus = {"general": TAUS | {"size": 0.01}, "edema": TAUS}
    # opened, the corners are gone: 34 of them
    assert segment(made, taus=taus, min_component_px=34).findings[0]["reason"] is None
    assert segment(made, taus=taus, min_component_px=35).findings[0]["reason"] == "empty_after_refine"


def test_places_names_and_grounding_stay_with_the_anatomy(segment):
    """Without any lung on the image in the box's rows, c1, grounding and names are what they were."""
    made = study("s1", [said(labels=[R_BASE])], [blob(R_BASE)])
    row = segment(made).findings[0]
    made["lungs"] = {lung: np.roll(mask, 8, axis=1) for lung, mask in made["lungs"].items()}
    moved = segment(made).findings[0]
    for name in ("grounded", "locations", "area", "share_outside", "box_verdicts"):
        assert row[name] == moved[name]
    assert row["grounded"] == [R_BASE]


def test_the_heart_s_ratio_has_the_lungs_on_the_image(segment):
    """Lungs from column 3 to 60 on the image, of the zones from 4 to 59; the heart is 20 wide."""
    assert segment(study("s1", [], [])).studies[0]["ctr"] == pytest.approx(20 / 58)


def test_the_sweep_has_the_same_lungs(tmp_path, segment):
    """An area of the sweep is that of the masks stage, under lungs of which the fill shows."""
    made = study("s1", [said(labels=[R_BASE, L_BASE], **EFFUSION)], [blob(R_BASE)], **{"lungs": lungs_on_image()})
    row = segment(made).findings[0]
    inputs = write_inputs(tmp_path / "sweep", [made])
    options = SweepSettings.from_dict({"sets": {"default": {"general": TAUS, "edema": TAUS}}} | RULES)
    sweep.run_shard(**inputs, output=tmp_path / "sweep.parquet", options=options)
    (swept,) = read_table(tmp_path / "sweep.parquet").to_dicts()
    # 14 of the lung's 24 columns and rows 48 to 61: a quarter of 56 rows, which holds the blob but no corner of it
    assert swept["mask_px"] == row["area"] == 14 * 24
