"""Splits by subject: shares by the size of the cohort, no empty split where there are enough subjects."""

import random
from collections import Counter

import pytest

from cohort_runs import COLUMNS, of, run_cohort, write_csv
from cxr.base.tables import read_table
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort.split import default_shares, hashed_split, subject_splits
from cxr.workflow.settings import SettingsError, read

SMALL, LARGE = [80, 10, 10], [98, 1, 1]
BY_SIZE = ()


def without_split(number: int, prefix: str = "p") -> list[tuple[str, str]]:
    return [(f"{prefix}{place}", "") for place in range(number)]


@pytest.mark.parametrize("number", [3, 4, 5, 7, 10, 20, 46, 100])
@pytest.mark.parametrize("prefix", ["p", "Q-", "ä "])
def test_a_small_cohort_has_a_subject_in_each_split(number, prefix):
    for seed in range(40):
        given = without_split(number, prefix)
        splits = subject_splits(given, BY_SIZE, seed)
        assert set(splits.values()) == set(SPLITS)
        by_hash = {subject: hashed_split(subject, SMALL, seed) for subject, _ in given}
        num_empty = len(set(SPLITS) - set(by_hash.values()))
        assert sum(splits[subject] != split for subject, split in by_hash.items()) == num_empty


def test_the_sizes_of_the_splits_follow_the_size_of_the_cohort():
    small, large = without_split(1999), without_split(2000)
    assert subject_splits(small, BY_SIZE, 1) == {subject: hashed_split(subject, SMALL, 1) for subject, _ in small}
    assert subject_splits(large, BY_SIZE, 1) == {subject: hashed_split(subject, LARGE, 1) for subject, _ in large}
    assert (default_shares(1999), default_shares(2000)) == (tuple(SMALL), tuple(LARGE))
    counts = Counter(subject_splits(small, BY_SIZE, 1).values())
    assert counts["validate"] == pytest.approx(200, abs=45)
    assert counts["test"] == pytest.approx(200, abs=45)


def test_given_shares_hold_at_any_size():
    for number in (1999, 2001):
        given = without_split(number)
        assert subject_splits(given, [60, 20, 20], 5) == {
            subject: hashed_split(subject, [60, 20, 20], 5) for subject, _ in given
        }
    assert set(subject_splits(without_split(30), [100, 0, 0], 5).values()) == {"train"}
    assert set(subject_splits(without_split(30), [99, 0, 1], 5).values()) == {"train", "test"}


def test_the_order_of_the_rows_changes_nothing():
    for number in (2, 3, 8, 46, 300):
        given = without_split(number) * 2
        splits = subject_splits(given, BY_SIZE, 2026)
        for seed in range(5):
            mixed = random.Random(seed).sample(given, len(given))
            assert subject_splits(mixed, BY_SIZE, 2026) == splits


def test_a_subject_more_moves_no_more_subjects_than_splits_were_empty():
    for seed in range(30):
        before = subject_splits(without_split(12), BY_SIZE, seed)
        after = subject_splits(without_split(13), BY_SIZE, seed)
        empty = set(SPLITS) - {hashed_split(subject, SMALL, seed) for subject in before}
        assert sum(after[subject] != split for subject, split in before.items()) <= len(empty)


def test_splits_of_the_table_win_and_missing_ones_are_filled_from_the_others():
    by_table = [(f"t{place}", "train") for place in range(30)]
    splits = subject_splits(by_table + without_split(2), BY_SIZE, 0)
    assert all(splits[subject] == "train" for subject, _ in by_table)
    assert {splits["p0"], splits["p1"]} == {"validate", "test"}
    only_test = subject_splits([*by_table, ("v", "validate"), ("p0", "")], BY_SIZE, 0)
    assert only_test["p0"] == "test"
    assert set(subject_splits(by_table, BY_SIZE, 0).values()) == {"train"}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_too_few_subjects_leave_a_split_empty(number):
    for seed in range(20):
        splits = subject_splits(without_split(number), BY_SIZE, seed)
        assert len(set(splits.values())) == number


def test_only_subjects_that_can_be_used_fill_a_split():
    usable = {"p1", "p2", "p3"}
    for seed in range(30):
        splits = subject_splits(without_split(40), BY_SIZE, seed, usable)
        assert {splits[subject] for subject in usable} == set(SPLITS)


def run(folder, shards: int, rows: list[tuple]) -> dict[str, str]:
    manifest = write_csv(folder / "m.csv", (*COLUMNS, "findings"), rows)
    run_cohort(folder, manifest=manifest, shards=shards)
    table = read_table(folder / "out/images.parquet")
    return dict(table.select("subject_id", "split").iter_rows())


def test_a_cohort_of_any_number_of_shards_has_images_with_reports_in_each_split(tmp_path):
    (tmp_path / "a.dcm").write_bytes(of())
    rows = [(f"p{place}", f"s{place}", f"i{place}", "a.dcm", "", "Clear." * (place < 3)) for place in range(25)]
    rows += [(f"gone{place}", f"g{place}", f"g{place}", "gone.dcm", "", "Clear.") for place in range(9)]
    splits = run(tmp_path, 1, rows)
    assert {splits[f"p{place}"] for place in range(3)} == set(SPLITS)
    assert run(tmp_path, 7, rows[::-1]) == splits
    without = [(*row[:-1], "") for row in rows]
    assert {split for subject, split in run(tmp_path, 2, without).items() if subject[0] == "p"} == set(SPLITS)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ({"train": 90}, "validate and test must be given too"),
        ({"train": 90, "test": 10}, "validate must be given too"),
        ({"train": 90, "validate": 10, "test": 10}, "must add up to 100"),
    ],
)
def test_shares_are_given_together(split, sentence):
    with pytest.raises(SettingsError, match=sentence):
        read({"cohort": {"split": split}})
    assert read({}).cohort.split_shares() == []
    assert read({"cohort": {"split": {"train": 80, "validate": 10, "test": 10}}}).cohort.split_shares() == SMALL
