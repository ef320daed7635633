"""Decoys of the review: wrong by construction, like real items on the page, and the reliability that they measure."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from cxr.base.hdf5 import Shards, ShardWriter
from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.metrics.raters import log_linear_z, measure_reliability
from cxr.plotting.encoding import encode_mask
from cxr.reporting.review import rates
from cxr.reporting.review.decoys import make_wrong_masks, make_wrong_negatives, move_mask, plant_decoys
from cxr.reporting.review.make_pages import describe_unit
from cxr.reporting.review.page import page_data, read_form
from cxr.reporting.review.units import Unit, deal_units
from review_cases import cells, picture

SIZE = 64
LUNGS = {"right lung": (slice(8, 40), slice(8, 24)), "left lung": (slice(10, 42), slice(38, 54))}
SPOT = (slice(12, 20), slice(10, 18))
"""A mask in the right lung: 8 × 8 pixels, 4 below the lung's top, 2 from its left edge."""


def area(*place: slice) -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[place] = True
    return mask


def unit(image: str, *location: str, mask_id: str | None = "own", **changes: object) -> Unit:
    made = Unit(f"p-{image}", f"s-{image}", image, "edema", location, mask_id, "findings", "Edema.", "definitive")
    return replace(made, **changes)


@pytest.fixture
def stored(tmp_path) -> dict:
    """A donor with a mask in its right lung, and images whose left lung is quiet, not quiet, or not empty."""
    lungs = np.stack([area(*place) for place in LUNGS.values()])
    with ShardWriter(tmp_path / "organs.h5", labels=list(LUNGS)) as writer:
        for image in ("donor", "quiet", "boxed", "stated"):
            writer.append(image, mask=lungs)
    with ShardWriter(tmp_path / "masks.h5", key="mask_id") as writer:
        writer.append("spot", mask=area(*SPOT))
    signs = [{"location": name, "box_confidence": 0.1, "anomalous_fraction": 0.01} for name in LUNGS]
    loud = [row | {"box_confidence": 0.9} for row in signs]
    left = [name for name in VALID_LOCATIONS if name.startswith("left")]
    rows = [("quiet", left, signs), ("boxed", left, loud), ("stated", left[1:], signs)]
    pl.DataFrame(rows, ["image_id", "empty", "signs"], orient="row").write_parquet(tmp_path / "studies.parquet")
    donor = {"kind": "basic", "mask_id": "spot", "unit": 0, "image_id": "donor", "subject_id": "p-donor"}
    donor |= {"target": "edema", "location": ["right mid zone lung"]}
    pl.DataFrame([donor]).write_parquet(tmp_path / "units.parquet")
    with Shards([str(tmp_path / "masks.h5")], "mask_id") as masks, Shards([str(tmp_path / "organs.h5")]) as organs:
        yield {
            "studies": [str(tmp_path / "studies.parquet")], "mask_units": [str(tmp_path / "units.parquet")],
            "masks": masks, "organs": organs, "seed": 1,
        }  # fmt: skip


def test_a_wrong_mask_is_another_patients_in_the_quiet_lung_that_the_text_does_not_name(stored):
    place = "right lung base"
    hosts = [
        unit("quiet", place), unit("boxed", place), unit("stated", place), unit("quiet", "left lung"),
        unit("quiet", place, "left lung"), unit("quiet", place, target="opacity"),
        unit("quiet", place, subject_id="p-donor"),
    ]  # fmt: skip
    (decoy,) = make_wrong_masks(hosts, **stored)
    assert decoy.host is hosts[0]
    assert (decoy.unit.report, decoy.unit.location, decoy.unit.target) == ("Edema.", (place,), "edema")
    assert decoy.unit.pair_ids == []
    assert decoy.unit.mask_id not in ("own", "spot")
    # mirrored: 2 pixels from the outer edge of the left lung, which is its right one, and 4 below its top
    np.testing.assert_array_equal(decoy.mask, area(slice(14, 22), slice(44, 52)))


def test_a_mask_that_does_not_fit_is_not_moved():
    lung, small = area(*LUNGS["right lung"]), area(slice(22, 26), slice(14, 18))
    spot = area(*SPOT)
    np.testing.assert_array_equal(move_mask(spot, lung, lung, mirrored=False), spot)
    assert move_mask(spot, lung, small, mirrored=False) is None
    assert move_mask(spot, lung, np.zeros_like(lung), mirrored=False) is None


def test_a_wrong_negative_denies_what_the_report_affirms_in_the_form_of_the_real_ones():
    hosts = [
        unit("a", "right lung", "left lung"), unit("b", "right lung", certainty="tentative"),
        unit("c", "heart", target="cardiomegaly"),
    ]  # fmt: skip
    real = [unit("n", "left lung base", mask_id=None)]
    (decoy,) = make_wrong_negatives(hosts, [*hosts, *real], "A", 1)
    assert decoy.unit.location in (("right lung",), ("left lung",))
    assert (decoy.unit.mask_id, decoy.unit.target, decoy.unit.image_id, decoy.expert) == (None, "edema", "a", "A")
    (decoy,) = make_wrong_negatives(hosts, [unit("n", mask_id=None)], "A", 1)
    assert decoy.unit.location == ()


def test_a_tenth_of_each_experts_items_of_each_kind_are_decoys(stored, caplog):
    real = [unit("quiet", "right lung base", mask_id=f"own-{number}") for number in range(18)]
    real += [unit(f"n{number}", "left lung", mask_id=None) for number in range(20)]
    dealt = deal_units(real, ["A", "B"], 1)
    decoys = plant_decoys(real, dealt, **stored)
    assert [decoy.expert for decoy in decoys] == [None, None, "A", "A", "B", "B"]
    assert {decoy.mask is None for decoy in decoys[2:]} == {True}
    assert not caplog.records
    assert [decoy.unit.key for decoy in plant_decoys(real, dealt, **stored)] == [decoy.unit.key for decoy in decoys]
    plant_decoys([unit("boxed", "right lung"), *real[18:]], dealt, **stored)
    assert "only 2 of 6 decoys were made" in caplog.text


def test_a_decoy_looks_like_a_real_item(stored):
    host = unit("quiet", "right lung base", image_id="image-secret-1")
    decoys = [*make_wrong_masks([unit("quiet", "right lung base")], **stored)]
    decoys += make_wrong_negatives([host], [unit("n", "left lung", mask_id=None)], "A", 1)
    shown = []
    for item in (host, replace(host, mask_id=None), *(decoy.unit for decoy in decoys)):
        png = encode_mask(area(*SPOT)) if item.is_positive else None
        data, _ = page_data("A", read_form("verdict"), [("code", describe_unit(item, picture("image-secret-1"), png))])
        (row,) = data["items"]
        shown.append({name: row[name] for name in row if name not in ("mask", "facts")} | {"labels": row["facts"][0]})
    assert shown[0] == shown[2]  # but for the mask's pixels and the location
    assert shown[1] == shown[3]
    assert not re.search("decoy|spot|secret", json.dumps(shown))


def test_reliability_by_hand():
    options = {"replicates": 500, "level": 0.95, "seed": 1}
    d_prime, corrected = measure_reliability(90, 100, 0, 10, **options)
    # (90 + 10/11) / (100 + 20/11) = 0.892857, z = 1.24187; (0 + 1/11) / (10 + 2/11) = 0.0089286, z = -2.36857
    assert d_prime.value == pytest.approx(3.6104, abs=1e-4)
    assert corrected.value == pytest.approx(0.9)
    assert corrected.low < 0.9 < corrected.high < 1
    d_prime, corrected = measure_reliability(100, 100, 10, 10, **options)
    assert d_prime.value == 0
    assert d_prime.low < 0 < d_prime.high
    assert corrected == (None, None, None)
    d_prime, corrected = measure_reliability(90, 100, 4, 10, **options)
    assert corrected.value == pytest.approx((0.9 - 0.4) / 0.6)
    assert measure_reliability(3, 10, 5, 10, **options)[1].value == 0
    assert measure_reliability(3, 10, 0, 0, **options) == ((None,) * 3, (None,) * 3)
    assert log_linear_z(np.array([10]), np.array([10])) == pytest.approx([1.6906], abs=1e-4)  # 10.5 of 11


def test_a_careful_and_a_careless_reader():
    """20 units with a mask, of which 2 are wrong, and 5 decoys: A sees every fault, B accepts everything."""
    rows = [
        (expert, number, "p", "edema", True, expert == "B" or number >= 2) for expert in "AB" for number in range(20)
    ]
    wrong = [(expert, 100 + number, "", "", True, expert == "B") for expert in "AB" for number in range(5)]
    verdicts, decoy_verdicts = (pl.DataFrame(part, schema=rates.VERDICTS, orient="row") for part in (rows, wrong))
    table = rates.tabulate_reliability(verdicts, decoy_verdicts, ["A", "B"], seed=1)
    careful, careless, overall = (cells(table, expert=name, group="positive") for name in ("A", "B", "overall"))
    assert (careful["hit_rate"], careful["false_alarm_rate"], careful["corrected"]) == (90.0, 0.0, 90.0)
    assert careful["d_prime"] > 2.5
    assert (careless["hit_rate"], careless["false_alarm_rate"], careless["d_prime"]) == (100.0, 100.0, 0.0)
    assert careless["corrected"] is None
    assert (overall["units"], overall["decoys"], overall["corrected"]) == (20, 5, 90.0)
    assert cells(table, expert="A", group="negative")["d_prime"] is None
