"""Shares among the negatives: as near to Table 10 as the reports allow, without losses, the same for any shards."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS
from cxr.ils import templates
from cxr.ils.dataset.negatives import Census, DenialDraws, OpenWays
from dataset_cases import (
    ALL,
    BARS,
    LUNG_LESIONS,
    OPTIONS,
    RIGHT,
    build,
    deny,
    line,
    make,
    said,
    study,
    tuple_,
    write_shard,
)

PLACE = {"basic": ("right lung",)}
BOTH_KINDS = PLACE | {"lesion_inference": ("right lung",)}
NEVER = replace(OPTIONS, global_share=dict.fromkeys(LUNG_LESIONS, 0.0))


def lines_of(built: dict[str, Path]) -> list[dict]:
    return [row for split in ("train", "validate", "test") for row in read_lines(built[split])]


# --- nothing is lost


def test_the_only_possible_negative_is_taken_whatever_the_draw():
    """No place is empty and nothing of edema stands: a global one is all there is."""
    known = said(empty=frozenset(), everywhere=frozenset({"edema"}), ctr=None)
    for seed in range(20):
        made, reasons = deny(known, seed=seed, bars=replace(BARS, global_=dict.fromkeys(LUNG_LESIONS, 0.0)))
        assert ("global", "edema") in {(pair.type, pair.target) for pair in made}
        assert "edema" not in reasons


def test_the_only_kind_of_opacity_s_negative_that_is_left_is_taken():
    """The one place is already asked for as a lesion inference: the basic one is left, and the other way round."""
    known = said(empty=frozenset(), negated={"opacity": frozenset({"left lung base"})}, about_lungs=False, ctr=None)
    for taken, left in (("basic", "lesion_inference"), ("lesion_inference", "basic")):
        instruction = templates.write_instruction(taken, "opacity", ["left lung base"])
        for seed in range(20):
            (pair,), _ = deny(known, seed=seed, taken=[instruction])
            assert (pair.type, pair.location) == (left, ("left lung base",))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_type_that_a_study_may_deny_is_denied(tmp_path, share):
    """Studies of which each leaves something else open; whatever the share, each has a negative of each such type."""
    rows, said_of, possible = [], [], 0
    for number in range(40):
        empty = [[], ["left lung"], list(VALID_LOCATIONS)][number % 3]
        rows.append(study(study_id=f"s{number:02d}", image_id=f"i{number:02d}", empty=empty, ctr=None))
        silent = number % 4 == 3
        said_of.append(line([], study_id=f"s{number:02d}", comparison_only=silent))
        # opacity as a whole only where all ten places are empty
        possible += 0 if silent else 5 + bool(empty)
    options = replace(OPTIONS, global_share=dict.fromkeys(LUNG_LESIONS, share))
    built = make(tmp_path, [write_shard(tmp_path, "00", rows, [], said_of)], options)
    assert len(lines_of(built)) == possible
    reasons = set(read_table(built["dropped"])["reason"])
    assert reasons == {"section_silent", "no_empty_location", "wide_heart"}


# --- as near as the reports allow


@given(
    share=st.floats(0, 1),
    alone=st.integers(0, 15),
    against=st.integers(0, 15),
    draws=st.lists(st.floats(0, 1, exclude_max=True), max_size=30, unique=True),
)
def test_no_other_number_of_globals_is_nearer_to_the_share(share, alone, against, draws):
    census = Census()
    for _ in range(alone):
        census.add("edema", OpenWays({}, anywhere=True), DenialDraws(0.5, 0.5, 0.5))
    for _ in range(against):
        census.add("edema", OpenWays(PLACE, anywhere=False), DenialDraws(0.5, 0.5, 0.5))
    for draw in draws:
        census.add("edema", OpenWays(PLACE, anywhere=True), DenialDraws(draw, 0.5, 0.5))
    bar = census.bars(dict.fromkeys(LUNG_LESIONS, 0.5) | {"edema": share}, 0.5).global_["edema"]
    whole = alone + against + len(draws)
    made = alone + sum(draw < bar for draw in draws)
    reachable = range(alone, alone + len(draws) + 1)
    assert abs(made - share * whole) <= min(abs(other - share * whole) for other in reachable) + 1e-9


def test_opacity_s_kinds_share_what_is_left_after_the_globals():
    """Of 100 opacities 20 become global. Of the other 80, 40 are to be inference; 30 must be, 10 can only be basic."""
    census = Census()
    for number in range(100):
        draw = number / 100
        kinds = {"basic": PLACE["basic"]} if number >= 90 else BOTH_KINDS
        kinds = {"lesion_inference": PLACE["basic"]} if 60 <= number < 90 else kinds
        census.add("opacity", OpenWays(kinds, anywhere=number < 60), DenialDraws(draw, draw, 0.5))
    bars = census.bars(dict.fromkeys(LUNG_LESIONS, 0.2), 0.5)
    assert bars.global_["opacity"] == 0.2  # below it lie 0.00 to 0.19
    assert bars.inference == 0.3  # 0.20 to 0.29: ten besides the 30


def test_a_study_is_counted_once_by_the_image_that_carries_the_negative(tmp_path):
    """The first image leaves edema a global only, the second a place: the study counts as the first does."""
    rows, reports = [], []
    for number in range(10):
        ids = {"study_id": f"s{number}", "ctr": None}
        rows += [study(**ids, image_id=f"i{number}a", empty=[]), study(**ids, image_id=f"i{number}b")]
        reports.append(line([], study_id=f"s{number}"))
    made = lines_of(make(tmp_path, [write_shard(tmp_path, "00", rows, [], reports)], NEVER))
    edemas = [row for row in made if row["target"] == "edema"]
    assert Counter((row["type"], row["image_id"][-1]) for row in edemas) == {("global", "a"): 10}


def mixed(size: int) -> list[tuple[dict, list[dict], dict]]:
    """Studies of which a third leave no place, a third some places, a third all of them."""
    found = []
    for number in range(size):
        ids = {"study_id": f"s{number:04d}", "image_id": f"i{number:04d}"}
        empty = [[], sorted(RIGHT), sorted(ALL)][number % 3]
        row = study(**ids, subject_id=f"p{number // 2:04d}", empty=empty, split=["train", "test"][number % 2])
        found.append((row, [], line([tuple_("effusion")], study_id=ids["study_id"], subject_id=row["subject_id"])))
    return found


def test_the_realised_shares_are_the_wanted_ones(tmp_path):
    """Places alone 0, both ways 400 of 600 studies, a global alone 200: a third at least is global."""
    shares = {
        "pneumonia": 0.0212,
        "atelectasis": 0.4,
        "opacity": 0.1,
        "consolidation": 0.9,
        "edema": 1.0,
        "effusion": 0.5,
    }
    made = lines_of(build(tmp_path, mixed(600), 2, options=replace(OPTIONS, global_share=shares)))
    counts = Counter((row["target"], row["type"]) for row in made)
    number = {lesion: counts[lesion, "global"] for lesion in shares}
    # effusion is denied explicitly: each place is open in every study. Of 400 opacities 200 may be global
    assert number == {
        "pneumonia": 200, "atelectasis": 240, "opacity": 40, "consolidation": 540, "edema": 600, "effusion": 300,
    }  # fmt: skip
    assert counts["opacity", "lesion_inference"] == counts["opacity", "basic"] == 180
    assert sum(counts[lesion, kind] for lesion in shares for kind in templates.TYPES) == 5 * 600 + 400


def test_more_globals_are_asked_for_by_adding_some_not_by_drawing_anew(tmp_path):
    chosen = []
    for number, share in enumerate((0.4, 0.5, 0.8)):
        options = replace(OPTIONS, global_share=dict.fromkeys(LUNG_LESIONS, share))
        made = lines_of(build(tmp_path / str(number), mixed(90), 1, options=options))
        chosen.append({(row["study_id"], row["target"]) for row in made if row["type"] == "global"})
    assert chosen[0] < chosen[1] < chosen[2]


def test_the_pairs_are_the_same_for_any_shards(tmp_path):
    made = [build(tmp_path / str(n), mixed(120), n, order=n) for n in (1, 3, 8)]
    for name in ("train", "validate", "test", "excluded", "dropped"):
        assert len({built[name].read_bytes() for built in made}) == 1


# --- told


def test_counts_show_realised_beside_wanted(workflow_run):
    """Measured on the lines themselves."""
    made = [row for split in ("train", "validate", "test") for row in read_lines(lines_path(workflow_run, split))]
    rows = {row["count"]: row for row in read_table(workflow_run / "results/tables/counts.tsv").to_dicts()}
    for lesion in LUNG_LESIONS:
        denied = [row for row in made if not row["seg"] and row["target"] == lesion]
        share = 100 * sum(row["type"] == "global" for row in denied) / len(denied)
        told = rows[f"global among negatives of {lesion}, %"]
        assert told["default"] == pytest.approx(share, abs=0.005)
        assert told["configured"] == pytest.approx(100 * DEFAULT[lesion], abs=0.005)
        assert told["paper"] == pytest.approx(100 * DEFAULT[lesion], abs=0.01)
    at_places = [row for row in made if not row["seg"] and row["target"] == "opacity" and row["type"] != "global"]
    told = rows["lesion inference among opacity's negatives at a place, %"]
    kinds = [row["type"] == "lesion_inference" for row in at_places]
    assert told["default"] == pytest.approx(100 * sum(kinds) / len(kinds), abs=0.005)
    assert abs(sum(kinds) - len(kinds) / 2) <= 0.5
    assert told["configured"] == 50
    assert rows["pairs"]["configured"] is None


DEFAULT = {
    "pneumonia": 0.0212, "atelectasis": 0.1163, "opacity": 0.0019, "consolidation": 0.0441, "edema": 0.0222,
    "effusion": 0.2326,
}  # fmt: skip


def lines_path(run: Path, split: str) -> Path:
    return run / f"results/dataset/default/{split}.jsonl"


def test_the_lines_leave_no_study_without_the_only_negative_it_could_have(workflow_run):
    """Of each type, a study has a negative or a reason by which nothing of it may be denied."""
    dropped = read_table(workflow_run / "results/dataset/default/dropped.parquet")
    negative = dropped.filter(dropped["polarity"] == "negative")
    made = [row for split in ("train", "validate", "test") for row in read_lines(lines_path(workflow_run, split))]
    denied = {(row["study_id"], row["target"]) for row in made if not row["seg"]}
    without = set(negative.select("study_id", "target").iter_rows())
    studies = {study for study, _ in denied | without}
    assert denied | without == {(study, lesion) for study in studies for lesion in LESIONS}
    assert "global_not_drawn" not in set(negative["reason"])
