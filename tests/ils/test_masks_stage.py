"""The masks stage as a whole: its files, what holds over random studies, and the sweep of threshold sets."""

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cxr.base.errors import StoreError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table, write_excluded
from cxr.base.vocabulary import LESIONS, LOBE_ZONES, VALID_LOCATIONS
from cxr.ils.masks import algorithm, inputs, sweep
from cxr.ils.masks.segmenter import AnomalyLevel, LesionSegmenter
from cxr.ils.masks.settings import SweepSettings
from cxr.workflow.settings import Settings
from masks_chest import SIZE, TAUS, blob, chest, study
from masks_shard import RULES, said, write_inputs

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


def test_the_same_input_gives_the_same_bytes(segment):
    studies = [random_study(number) for number in range(30)]
    first, second = segment(*studies), segment(*studies[::-1])
    assert files(first.folder) == files(second.folder)
    assert len(files(first.folder)) == 5
    assert first.units


def test_masks_and_rows_do_not_depend_on_the_shard(segment):
    studies = [random_study(number) for number in range(20)]
    whole, parts = segment(*studies), [segment(*studies[:9]), segment(*studies[9:])]
    for table in ("findings", "units", "studies"):
        assert getattr(whole, table) == [row for part in parts for row in getattr(part, table)]
    for part in parts:
        for row in part.units:
            if row["mask_id"]:
                assert np.array_equal(part.mask(row), whole.mask(row))


def test_masks_are_named_by_study_and_pixels_and_stored_once(segment):
    result = segment(*(random_study(number) for number in range(20)))
    with Shard(result.folder / "00.h5", key="mask_id") as shard:
        rows = [row for row in [*result.findings, *result.units] if row["mask_id"]]
        # image by image, those of its findings first
        in_order = sorted(rows, key=lambda row: (row["study_id"], row["image_id"]))
        assert shard.ids == list(dict.fromkeys(row["mask_id"] for row in in_order))
        assert len(rows) > len(shard.ids) > 5
        for row in rows:
            mask = shard.get("mask", row["mask_id"])
            digest = hashlib.blake2b(row["study_id"].encode() + np.packbits(mask, axis=-1).tobytes()).hexdigest()
            assert row["mask_id"] == "m" + digest[:16]
            assert row["area"] == mask.sum() > 0


def test_every_image_is_accepted_and_those_excluded_before_are_not_asked(segment):
    def edit(inputs):
        row = {"image_id": "i-s001", "study_id": "", "stage": "boxes", "reason": "engine_failure", "detail": ""}
        write_excluded(inputs["boxes_excluded"], [row])
        lines = Path(inputs["reports"]).read_text().splitlines()
        Path(inputs["reports"]).write_text("\n".join(line for line in lines if "s002" not in line) + "\n")

    result = segment(*(random_study(number) for number in range(4)), edit=edit)
    assert [row["image_id"] for row in result.studies] == ["i-s000", "i-s003"]
    assert result.excluded == []


def test_a_shard_without_images(segment):
    result = segment()
    assert result.findings == result.units == result.studies == []
    with Shard(result.folder / "00.h5", key="mask_id") as shard:
        assert len(shard) == 0


def test_a_damaged_input_is_named(segment):
    def edit(inputs):
        Path(inputs["anatomy"]).write_bytes(b"no HDF5")

    with pytest.raises(StoreError, match=r"anatomy\.h5 is damaged"):
        segment(random_study(1), edit=edit)


def test_no_unit_names_an_ungrounded_label_and_no_negative_place_meets_a_finding(segment):
    """Invariants over random studies."""
    result = segment(*(random_study(number) for number in range(100, 160)))
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


VALUES = {
    "ano": (0.0, 0.005, 0.05, 0.1, 0.1001, 0.2, 1.0),
    "anatomy": (0.0, 0.04, 0.125, 0.25, 0.476190476190476, 1.0),
    "conf": (0.0, 0.005, 0.2, 0.5, 1.0),
    "signal": (0.0, 0.1, 0.2, 0.475, 1.0),
    "size": (0.0, 0.04, 0.1, 0.119047619047619, 1.0),
}
"""Both ends of each threshold, those of the paper, and ratios that a box of the constructed chest has exactly."""


def random_point(random: np.random.Generator) -> dict[str, dict[str, float]]:
    """A point of the grid over all ten thresholds; three of each five are taken from the loose half."""
    return {
        part: {
            tau: float(random.choice(values[: 3 if loose else None]))
            for (tau, values), loose in zip(VALUES.items(), random.random(5) < 0.6, strict=True)
        }
        for part in ("general", "edema")
    }


@pytest.mark.slow
def test_a_sweep_agrees_with_one_run_for_each_set(segment, tmp_path):
    """The named sets, some of our own, and 24 random points of a grid over all thresholds, edema's too."""
    studies = [random_study(number) for number in range(40)]
    given = {name: chosen.as_dict() for name, chosen in Settings().thresholds.sets.items()}
    sets = {"table7": given["default"], "half": given["half"], "own": {"general": TAUS, "edema": TAUS}}
    sets["zero"] = {part: dict.fromkeys(TAUS, 0.0) for part in ("general", "edema")}
    sets["loose"] = {"general": TAUS | {"ano": 0.05}, "edema": TAUS | {"ano": 0.01, "conf": 0.0}}
    random = np.random.default_rng(6)
    sets |= {f"point{number}": random_point(random) for number in range(24)}
    inputs = write_inputs(tmp_path / "sweep", studies)
    output = str(tmp_path / "sweep.parquet")
    sweep.run_shard(**inputs, output=output, options=SweepSettings.from_dict({"sets": sets} | RULES))
    swept = read_table(output).to_dicts()
    assert {row["thresholds"] for row in swept} == set(sets)
    for name, chosen in sets.items():
        single = segment(*studies, taus=chosen)
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
                            **{key: one[key] for key in ("study_id", "image_id", "subject_id", "split", "unedited")},
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
    points = [tuple(tuple(row.items())[1:] for row in swept if row["thresholds"] == name) for name in sets]
    assert len(set(points)) >= 12  # they decide differently
    assert sum(counts[name] > 0 for name in sets if name.startswith("point")) >= 12


ZERO = {part: dict.fromkeys(TAUS, 0.0) for part in ("general", "edema")}
"""Thresholds that every box passes, so that all that a sweep may want of an image is wanted."""


def counted(monkeypatch, owner: object, name: str, key: Callable) -> Counter:
    """Count the calls of a function from now on, by what ``key`` makes of their positional arguments."""
    found, original = Counter(), getattr(owner, name)

    def call(*args, **more):
        found[key(*args)] += 1
        return original(*args, **more)

    monkeypatch.setattr(owner, name, call)
    return found


@pytest.fixture
def swept(tmp_path) -> Callable[[dict], None]:
    """Return a function that sweeps threshold sets over a shard of twenty studies."""
    files = write_inputs(tmp_path / "in", [random_study(number) for number in range(20)])
    output = str(tmp_path / "sweep.parquet")
    return lambda sets: sweep.run_shard(**files, output=output, options=SweepSettings.from_dict({"sets": sets} | RULES))


def test_a_sweep_reads_its_inputs_once_for_any_number_of_sets(swept, monkeypatch):
    random = np.random.default_rng(7)
    points = {"zero": ZERO} | {f"point{number}": random_point(random) for number in range(23)}
    found = []
    for sets in ({"zero": ZERO}, points):
        with monkeypatch.context() as patch:
            rows = counted(patch, Shard, "stored", lambda shard, field, row: (shard.path.name, field, row))
            opened = counted(patch, Shard, "__enter__", lambda shard: shard.path.name)
            read = [counted(patch, inputs, name, lambda path: Path(path).name) for name in ("read_table", "read_lines")]
            swept(sets)
        found.append((rows, opened, *read))
        assert {count for counter in found[-1] for count in counter.values()} == {1}
    assert found[0] == found[1]
    assert Counter(name for name, _, _ in rows) == {
        "anatomy.h5": 14,
        "anomaly.h5": 14,
        "organs.h5": 14,
        "frames.h5": 13,
    }
    assert [len(counter) for counter in (opened, *read)] == [4, 3, 1]


def test_a_sweep_does_once_what_its_sets_share(swept, monkeypatch):
    """One set under 24 names takes as many steps as under one, and different sets share what they decide alike."""
    steps = (
        (sweep, "compute_outcome"),
        (AnomalyLevel, "__init__"),
        (algorithm, "flag_failures"),
        (algorithm, "count_pixels_in_boxes"),
        (algorithm, "grow_component"),
    )
    taken = []
    for names in (1, 24):
        with monkeypatch.context() as patch:
            calls = [counted(patch, owner, name, lambda *_: None) for owner, name in steps]
            swept({f"set{number}": ZERO for number in range(names)})
        taken.append([counter.total() for counter in calls])
    assert taken[0] == taken[1]
    assert min(taken[0]) > 0
    random = np.random.default_rng(7)
    lesions = counted(monkeypatch, LesionSegmenter, "_lesion", lambda picture, decision: (picture, decision))
    levels = counted(monkeypatch, AnomalyLevel, "__init__", lambda level, picture, value: (picture, value))
    grown = counted(monkeypatch, AnomalyLevel, "grow", lambda level, label: (level, label))
    unions = counted(monkeypatch, LesionSegmenter, "union", lambda picture, labels: (picture, labels))
    grow, counts = (
        counted(monkeypatch, *of, lambda *_: None)
        for of in ((algorithm, "grow_component"), (algorithm, "count_pixels_in_boxes"))
    )
    swept({f"point{number}": random_point(random) for number in range(24)})
    assert set(lesions.values()) == set(levels.values()) == {1}
    assert [len(lesions), len(levels)] == [247, 84]
    both_lungs_of_14_images = 2 * 14
    assert [grow.total(), counts.total()] == [len(grown), len(levels) + len(unions) + both_lungs_of_14_images]
