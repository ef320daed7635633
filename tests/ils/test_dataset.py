"""The dataset stage: records, shards, their join."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS
from cxr.ils import templates
from cxr.ils.dataset.make_pairs import make_image_pairs
from cxr.ils.dataset.pairs import FIELDS, make_line, make_records
from dataset_cases import BARS, OPTIONS, SEED, build, line, make, random_cohort, study, tuple_, unit, write_shard

# Records and shards


REPORT = {"section_name": "findings", "section_content": "Effusion.", "reader": "c0de-1ex1"}


def test_record_has_every_field_of_the_contract_in_order():
    row = study(empty=["left lung"], ctr=None, standing=[{"lesion": "effusion", "locations": ["right lung"]}])
    grounded = unit(
        0, "basic", "effusion", ["right lung base"], reported_location=["right lung base", "left lung base"]
    )
    made, missing = make_image_pairs(row, [grounded], line([tuple_("effusion", "positive")]), OPTIONS, SEED, BARS)
    rows = list(map(make_line, make_records(row, REPORT, made)))
    assert all(tuple(record) == FIELDS for record in rows)
    assert rows[0] == {
        "pair_id": "s1_positive_0",
        "subject_id": "p1",
        "study_id": "s1",
        "image_id": "i1",
        "split": "train",
        "section_name": "findings",
        "section_content": "Effusion.",
        "sentence_index": 1,
        "type": "basic",
        "target": "effusion",
        "certainty": "definitive",
        "instruction": "Segment the effusion in the right lung base.",
        "answer": "[SEG]",
        "location": ["right lung base"],
        "grounded_location": ["right lung base"],
        "reported_location": ["right lung base", "left lung base"],
        "seg": True,
        "mask_id": "m0",
        "basis": None,
        "quote": None,
        "quote_section": None,
        "box_confidence": None,
        "anomalous_fraction": None,
        "reader": "c0de-1ex1",
    }
    assert rows[-1] == {
        "pair_id": f"s1_negative_{len(rows) - 2}",
        "subject_id": "p1",
        "study_id": "s1",
        "image_id": "i1",
        "split": "train",
        "section_name": "findings",
        "section_content": "Effusion.",
        "sentence_index": None,
        "type": "basic",
        "target": "effusion",
        "certainty": None,
        "instruction": "Segment the effusion in the left lung.",
        "answer": "[SEG] There is no effusion in the left lung.",
        "location": ["left lung"],
        "grounded_location": [],
        "reported_location": [],
        "seg": False,
        "mask_id": None,
        "basis": "elsewhere",
        "quote": None,
        "quote_section": None,
        "box_confidence": 0.0,
        "anomalous_fraction": 0.0,
        "reader": "c0de-1ex1",
    }
    reasons = {row["target"]: row["reason"] for row in missing}
    assert reasons == {"cardiomegaly": "wide_heart"}


@pytest.fixture(scope="module")
def cohort() -> list[tuple[dict, list[dict], dict]]:
    return random_cohort(60)


@pytest.fixture(scope="module")
def built(cohort, tmp_path_factory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("one"), cohort, 1)


def all_lines(built: dict[str, Path]) -> list[dict]:
    return [row for split in ("train", "validate", "test") for row in read_lines(built[split])]


@pytest.mark.parametrize("shards", [3, 8])
def test_same_bytes_for_any_shard_count_and_order(built, cohort, tmp_path, shards):
    other = build(tmp_path, cohort, shards, order=shards)
    for name, path in built.items():
        assert other[name].read_bytes() == path.read_bytes(), name


def test_files_are_sorted_numbered_and_split(built, cohort):
    split_of = {row["study_id"]: row["split"] for row, _, _ in cohort}
    for split in ("train", "validate", "test"):
        rows = list(read_lines(built[split]))
        assert rows
        assert [row["study_id"] for row in rows] == sorted(row["study_id"] for row in rows)
        for row in rows:
            assert tuple(row) == FIELDS
            assert row["split"] == split == split_of[row["study_id"]]
    rows = all_lines(built)
    ids = [row["pair_id"] for row in rows]
    assert len(set(ids)) == len(ids)
    counts: Counter = Counter()
    for row in rows:
        polarity = "positive" if row["seg"] else "negative"
        assert row["pair_id"] == f"{row['study_id']}_{polarity}_{counts[row['study_id'], polarity]}"
        counts[row["study_id"], polarity] += 1
        assert (row["mask_id"] is None) == (not row["seg"])
        assert row["answer"].startswith("[SEG]")
        templates.parse_pair(row["instruction"], row["answer"])


def test_at_most_one_negative_per_lesion_and_study(built):
    negatives_ = Counter((row["study_id"], row["target"]) for row in all_lines(built) if not row["seg"])
    assert max(negatives_.values()) == 1


def test_each_study_ends_as_pairs_or_as_a_reason(built, cohort):
    with_pairs = {row["image_id"] for row in all_lines(built)}
    excluded = read_table(built["excluded"])
    assert set(excluded["reason"]) == {"no_pairs"}
    assert with_pairs.isdisjoint(excluded["image_id"])
    assert sorted(with_pairs | set(excluded["image_id"])) == sorted(row["image_id"] for row, _, _ in cohort)
    silent = [row["image_id"] for row, _, _ in cohort if int(row["study_id"]) % 7 == 50000000 % 7]
    assert set(excluded["image_id"]) == set(silent)
    assert set(excluded["detail"]) == {"section_silent 6, wide_heart 1"}


def test_every_pair_not_made_has_a_row(built, cohort):
    dropped = read_table(built["dropped"])
    denied = Counter(row["study_id"] for row in all_lines(built) if not row["seg"])
    missing = Counter(dropped.filter(pl.col("polarity") == "negative")["study_id"])
    for row, _, _ in cohort:
        assert denied[row["study_id"]] + missing[row["study_id"]] == len(LESIONS)


def test_second_image_of_a_study_repeats_no_negative(tmp_path):
    rows = [study(image_id="i1", empty=["left lung"]), study(image_id="i2")]
    inputs = write_shard(tmp_path, "00", rows, [unit(0, "basic", "edema", ["right lung"], image_id="i2")], [line([])])
    made = list(read_lines(make(tmp_path, [inputs])["train"]))
    assert Counter(row["target"] for row in made if not row["seg"]) == Counter(LESIONS)
    assert len({row["pair_id"] for row in made}) == len(made)
    assert {row["image_id"] for row in made if row["seg"]} == {"i2"}


def test_reports_and_units_of_other_studies_are_passed_over(tmp_path):
    """Reports of studies that stopped before the masks: the first of all, one between, and the last of all."""
    rows = [study(study_id=name, image_id=f"i-{name}") for name in ("s2", "s4")]
    said = [line([], study_id=name, section_text=f"Report of {name}.") for name in ("s1", "s2", "s3", "s4", "s5")]
    units = [unit(0, "basic", "edema", ["right lung"], study_id=name, image_id=f"i-{name}") for name in ("s0", "s4")]
    made = list(read_lines(make(tmp_path, [write_shard(tmp_path, "00", rows, units, said)])["train"]))
    assert {(row["study_id"], row["section_content"]) for row in made} == {
        (name, f"Report of {name}.") for name in ("s2", "s4")
    }
    assert {row["study_id"] for row in made if row["seg"]} == {"s4"}


def test_an_empty_shard_is_valid(tmp_path):
    built = build(tmp_path, [], 2)
    assert all(built[split].read_bytes() == b"" for split in ("train", "validate", "test"))
    assert read_table(built["excluded"]).is_empty()
    assert read_table(built["dropped"]).is_empty()
