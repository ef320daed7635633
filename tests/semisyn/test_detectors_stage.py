"""The stage semisyn_detectors: what a run learns from, roles of patients, pictures of references, predictions."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
import polars as pl
import pytest
import torch

from annotation_files import write_coco
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.columns import check_columns, schema
from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.detection import training
from cxr.detection.proposals import ScoredBoxes
from cxr.semisyn.dataset.job_tables import BOXES, IMAGES
from cxr.semisyn.detectors import reference_images, train_detector
from cxr.semisyn.detectors.engine import DetectorsOptions, Validation
from cxr.semisyn.detectors.pools import LazySample, take_patients
from cxr.semisyn.detectors.reference_images import PICTURES, ROLES
from cxr.semisyn.detectors.train_detector import EPOCHS, POOLS, UPDATES, FrameShards, read_pools
from cxr.semisyn.references import PREDICTIONS

FINDINGS = ["opacity", "effusion"]
LITE = {"size": 64, "widths": [8, 8, 8, 8, 8], "batch": 4, "rate": 4e-3, "warmup": 0.15, "decay": 0.01, "clip": 5.0,
        "memory": 0.95, "bfloat16": False, "checkpoint_every": 3}  # fmt: skip
SIDE, SCALE = 512, 2.0
"""Side of a frame; original pixels to a frame's pixel."""


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def frame_of(name: str) -> np.ndarray:
    """Return a grey frame that depends on the name, with a bright square at (100, 120, 220, 240)."""
    grey = np.random.default_rng(sum(name.encode())).integers(90, 130, (SIDE, SIDE)).astype(np.uint8)
    grey[120:240, 100:220] += 90
    return grey


def write_shard(path: Path, names: list[str]) -> str:
    with ShardWriter(path, pictures=("image",)) as writer:
        for name in sorted(names):
            affine = np.array([[SCALE, 0, 0], [0, SCALE, 0]])
            shape = np.array([SIDE * SCALE, SIDE * SCALE], np.int32)
            writer.append(name, image=frame_of(name), to_original=affine, original_shape=shape)
    return str(path)


def reference(folder: Path, name: str, boxes: dict[str, list], role: str = "train") -> dict:
    """Write a reference of {image: [(label, box in original px)]}; return what a job is told of it."""
    regions = [Annotation(image, label, box, size=(1024, 1024)) for image, of in boxes.items() for label, box in of]
    write_coco(folder / f"{name}.json", Annotations(regions, set(boxes)))
    told = {"name": name, "format": "coco", "path": str(folder / f"{name}.json"), "role": role, "classes": {}}
    return told | {"image_id": "{stem}"}


def row(columns: dict, **given: object) -> dict:
    empty = {pl.String: "", pl.Int64: 0, pl.Float64: 0.0}
    return {name: given.get(name, empty.get(column.kind, [])) for name, column in columns.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> dict:
    """Six healthy films of three patients, six jobs a finding, four films with people's boxes, two of another house."""
    folder = tmp_path_factory.mktemp("world")
    sources = [f"h{number}" for number in range(6)]
    jobs = [f"{finding}-{number:06d}" for finding in FINDINGS for number in range(6)]
    images, boxes = [], []
    for job in jobs:
        finding, number = job.split("-")[0], int(job[-1])
        subset = "val" if number == 5 else "train"
        images.append(row(IMAGES, job_id=job, image_id=f"h{number}", subject_id=f"p{number // 2}", subset=subset,
                          finding=finding, rank=number, requested=6))  # fmt: skip
        for kind in ("conditioning", "visible"):
            shift = 0.0 if kind == "conditioning" else 7.0
            for target in ("source", "vindr"):
                boxes.append(row(BOXES, job_id=job, finding=finding, kind=kind, target=target, x1=10.0 + number,
                                 y1=20.0, x2=200.0 + shift, y2=240.0))  # fmt: skip
    write_table(folder / "images.parquet", pl.DataFrame(images, schema=schema(IMAGES)), IMAGES)
    write_table(folder / "boxes.parquet", pl.DataFrame(boxes, schema=schema(BOXES)), BOXES)
    films = [*sources, "r0", "r1", "r2", "r3", "t0", "t1"]
    patients = ["p0", "p0", "p1", "p1", "p2", "p2", "q0", "q0", "q1", "q2", "t", "t"]
    cohort = pl.DataFrame({"image_id": films, "subject_id": patients})
    write_table(folder / "cohort.parquet", cohort)
    square = ("Lung Opacity", (200.0, 240.0, 440.0, 480.0))
    drawn = {"r0.png": [square], "r1.png": [], "r2.png": [square], "r3.png": [square], "gone.png": [square]}
    return {
        "folder": folder,
        "images": str(folder / "images.parquet"),
        "boxes": str(folder / "boxes.parquet"),
        "edited": [write_shard(folder / "e0.h5", jobs[:5]), write_shard(folder / "e1.h5", jobs[5:])],
        "frames": [write_shard(folder / "f0.h5", films[:7]), write_shard(folder / "f1.h5", films[7:])],
        "patients": [str(folder / "cohort.parquet")],
        "people": reference(folder, "people", drawn | {"r1.png": []}),
        "test": reference(folder, "test", {"t0.png": [square], "t1.png": []}, "test"),
    }  # fmt: skip


def options(world: dict, **changes: object) -> DetectorsOptions:
    plain = {"engine": "lite", "engine_settings": LITE, "budget": "updates", "updates": 8, "epochs": 2, "seed": 5}
    plain |= {"findings": FINDINGS, "kind": "conditioning", "target": "source"}
    if changes.get("real"):
        changes = {"references": [world["people"]]} | changes
    return DetectorsOptions(**plain | changes)


def pools(world: dict, **changes: object) -> dict:
    with FrameShards(world["edited"], world["frames"], {}) as shards:
        tables = read_table(world["images"]), read_table(world["boxes"])
        found = read_pools(options(world, **changes), shards, *tables, world["patients"], 1)[0]
        return {name: [replace(film, read_frame=film.read_frame().copy) for film in of] for name, of in found.items()}


def train(world: dict, folder: Path, points: int = 1, **changes: object) -> Path:
    files = {name: world[name] for name in ("images", "boxes", "edited", "frames", "patients")}
    out = {"model": str(folder / "model")}
    out |= {name: str(folder / f"{name}.tsv") for name in ("updates", "epochs", "pools")}
    with mock.patch.object(train_detector, "POINTS", points):
        train_detector.run(number="0", **files, **out, options=options(world, **changes), compute={})
    return folder


def test_people_s_boxes_are_those_of_the_frame_and_only_drawn_findings_are_known(world):
    films = {film.image_id: film for film in pools(world, real=["people"])["real"]}
    assert sorted(films) == ["r0", "r1", "r2", "r3"]
    assert films["r0"].boxes == ((0, 100.0, 120.0, 220.0, 240.0),)
    assert films["r1"].boxes == ()
    assert {film.labelled_classes for film in films.values()} == {(0,)}
    assert films["r2"].subject_id == "q1"


def test_synthetic_images_are_the_first_of_each_finding_and_of_train(world):
    found = pools(world, synthetic=6, extra=["unedited", "shuffled"], extra_size=12)
    jobs = [film.image_id for film in found["synthetic"]]
    assert jobs == [f"{finding}-{number:06d}" for finding in sorted(FINDINGS) for number in range(3)]
    assert {film.labelled_classes for film in found["synthetic"]} == {(0, 1)}
    assert found["synthetic"][-1].boxes == ((0, 12.0, 20.0, 200.0, 240.0),)
    assert pools(world, synthetic=6, kind="visible")["synthetic"][-1].boxes == ((0, 12.0, 20.0, 207.0, 240.0),)
    # rank 5 is of the dataset's val
    assert len(found["unedited"]) == len(found["shuffled"]) == 10
    assert {film.boxes for film in found["unedited"]} == {()}
    for film, source in zip(found["unedited"], [f"h{n}" for n in (*range(5), *range(5))], strict=True):
        assert (film.read_frame() == frame_of(source)).all()
    assert (found["shuffled"][0].read_frame() == frame_of("effusion-000000")).all()


def test_a_part_of_the_dataset_is_a_size_and_a_number_beyond_it_is_refused(world):
    half = pools(world, synthetic="half", extra=["unedited"], extra_size="all")
    assert [film.image_id for film in half["synthetic"]] == [
        f"{finding}-{number:06d}" for finding in sorted(FINDINGS) for number in range(3)
    ]
    assert len(half["unedited"]) == 10
    with pytest.raises(UserError, match="a run has synthetic: 14, but the dataset has 12 images: lower synthetic"):
        pools(world, synthetic=14)


def test_shuffled_boxes_stay_within_a_finding(world):
    found = pools(world, synthetic=12, extra=["shuffled"], extra_size=12)
    for own, other in zip(found["synthetic"], found["shuffled"], strict=True):
        assert own.image_id == other.image_id
        assert own.boxes[0][0] == other.boxes[0][0]
        assert own.boxes != other.boxes


def test_a_fraction_of_the_patients_is_part_of_a_larger_one(world):
    films = pools(world, real=["people"])["real"]
    some = [take_patients(films, share, 3) for share in (0.3, 0.5, 1.0)]
    assert [len({film.subject_id for film in part}) for part in some] == [1, 2, 3]
    assert {one.image_id for one in some[0]} < {one.image_id for one in some[1]} < {one.image_id for one in some[2]}
    assert len({frozenset(one.subject_id for one in take_patients(films, 0.3, seed)) for seed in range(20)}) > 1


def test_empty_pools_and_strange_references_stop_the_run(world, tmp_path):
    with pytest.raises(UserError, match=r"semisyn\.references\.other\.path: none of its 1 images has a frame"):
        pools(world, real=["other"], references=[reference(tmp_path, "other", {"x.png": [("Opacity", (0, 0, 9, 9))]})])
    empty = world | {"images": str(tmp_path / "none.parquet")}
    write_table(empty["images"], read_table(world["images"]).with_columns(subset=pl.lit("val")))
    with pytest.raises(UserError, match="the pool synthetic of a run has no training image"):
        pools(empty, synthetic=6)


def test_a_training_tells_what_it_was_shown(world, tmp_path):
    train(world, tmp_path / "run", real=["people"], synthetic=6, shares={"real": (1, 3), "synthetic": (1, 0)})
    table, updates = read_table(tmp_path / "run/pools.tsv"), read_table(tmp_path / "run/updates.tsv")
    assert list(table.columns) == list(POOLS)
    real, painted = table.to_dicts()
    assert (real["pool"], real["reference"], real["images"], real["patients"]) == ("real", "people", 4, 3)
    assert (real["boxes"], real["without_frame"]) == (3, 1)
    assert (real["share_first"], real["share_last"], painted["share_first"], painted["share_last"]) == (0.5, 1, 0.5, 0)
    assert real["epochs"] * 4 + painted["epochs"] * 6 == pytest.approx(8 * 4, abs=1e-4)
    assert list(updates.columns) == list(UPDATES)
    assert updates["images"].to_list() == [4 * update for update in range(1, 9)]


def test_points_are_even_and_end_with_the_last_update():
    assert train_detector.report_steps(40, 4) == (10, 20, 30, 40)
    assert train_detector.report_steps(7, 3) == (2, 5, 7)
    assert train_detector.report_steps(2, 10) == (1, 2)


def test_a_score_is_the_mean_over_the_classes_with_boxes_and_images_that_know_them():
    def film(name: str, boxes: tuple, known: tuple) -> LazySample:
        return LazySample(boxes, known, name, name, lambda: np.full((8, 8), ord(name), np.uint8))

    box, other = (10.0, 10.0, 50.0, 50.0), (100.0, 100.0, 140.0, 140.0)
    films = [film("a", ((0, *box),), (0, 1)), film("b", ((1, *box),), (0, 1)), film("c", (), (1,))]
    # class 0: its box, then a false one on b, and c does not tell of it; class 1: a false one on c, then its box
    answers = {
        "a": ScoredBoxes(np.array([box]), np.array([0.9]), np.array([0])),
        "b": ScoredBoxes(np.array([other, box]), np.array([0.8, 0.4]), np.array([0, 1])),
        "c": ScoredBoxes(np.array([other, other]), np.array([0.95, 0.5]), np.array([0, 1])),
    }
    seen = Validation(films)
    assert seen.score(lambda frame: answers[chr(frame[0, 0])]) == pytest.approx((1 + 0.5) / 2)


def test_epochs_make_more_updates_of_more_images(world, tmp_path):
    counts = []
    for size in (6, 12):
        out = train(world, tmp_path / str(size), synthetic=size, budget="epochs")
        counts.append(len(read_table(out / "updates.tsv")))
    # 6 and 10 images twice, four at a time
    assert counts == [3, 5]


def test_a_training_is_scored_on_its_way_and_gives_the_same_detector(world, tmp_path):
    seen = {"validation": [world["test"] | {"role": "val"}]}
    plain = train(world, tmp_path / "plain", real=["people"], updates=40, points=4)
    told = train(world, tmp_path / "told", real=["people"], updates=40, points=4, **seen)
    assert contents(plain)["model/detector.safetensors"] == contents(told)["model/detector.safetensors"]
    table = read_table(told / "epochs.tsv")
    assert list(table.columns) == list(EPOCHS)
    assert table["updates"].to_list() == [10, 20, 30, 40]
    assert table["epoch"].to_list() == [10.0, 20.0, 30.0, 40.0]  # four images a batch, of four
    for name in ("loss_class", "loss_box"):
        losses = read_table(told / "updates.tsv")[name]
        assert losses.min() > 0
        assert table[name].to_list() == pytest.approx([losses[at : at + 10].mean() for at in (0, 10, 20, 30)])
    assert set(read_table(plain / "epochs.tsv")["map1070_validation"]) == {""}
    # the last score is that of the detector that is kept
    with FrameShards((), world["frames"], {}) as shards:
        images = Validation(train_detector._read_real(seen["validation"], FINDINGS, shards, world["patients"])[0])
        last = images.score(engine_module("cxr.semisyn.detectors", "lite").load(Setup(LITE)).load(told / "model"))
    assert table["map1070_validation"][-1] == pytest.approx(100 * last, abs=1e-5)


@pytest.mark.parametrize("seen", [False, True])
def test_a_killed_training_is_resumed_to_the_same_bytes(world, tmp_path, monkeypatch, seen):
    more = {"validation": [world["test"] | {"role": "val"}]} if seen else {}
    whole = train(world, tmp_path / "whole", real=["people"], synthetic=6, points=4, **more)
    own = training.DetectorTraining._update
    calls = []

    def killed(*arguments):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(training.DetectorTraining, "_update", killed)
    with pytest.raises(KeyboardInterrupt):
        train(world, tmp_path / "killed", real=["people"], synthetic=6, points=4, **more)
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["unfinished"]
    train(world, tmp_path / "killed", real=["people"], synthetic=6, points=4, **more)
    # seven before, and those after the checkpoint at the sixth
    assert len(calls) == 8 + 2
    assert contents(tmp_path / "killed") == contents(whole)
    assert set(contents(whole)) == {"model/detector.safetensors", "updates.tsv", "epochs.tsv", "pools.tsv"}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def predict(world: dict, model: Path, told: dict, output: Path) -> pl.DataFrame:
    files = {"model": str(model / "model"), "annotations": told["path"], "frames": world["frames"]}
    how = {"engine": "lite", "engine_settings": LITE, "findings": FINDINGS, "compute": {}}
    train_detector.run_predictions(**files, output=str(output), reference=told, **how)
    return read_table(output)


def test_predictions_are_in_original_pixels_and_of_every_image_that_was_read(world, tmp_path):
    model = train(world, tmp_path / "run", real=["people"], updates=150)
    table = predict(world, model, world["test"], tmp_path / "test.parquet")
    check_columns(table, PREDICTIONS, "test")
    assert set(table["image_id"]) == {"t0", "t1"}
    assert table["finding"].is_in(FINDINGS).all()
    assert table.select(pl.col("x2", "y2").max()).row(0) <= (1024, 1024)
    best = table.filter(pl.col("finding") == "opacity").sort("confidence", descending=True).row(0, named=True)
    # the bright square of every frame, in pixels of the original
    np.testing.assert_allclose([best[name] for name in ("x1", "y1", "x2", "y2")], [200, 240, 440, 480], atol=60)
    assert table.group_by("image_id").len()["len"].max() <= 100
    again = predict(world, model, world["test"], tmp_path / "again.parquet")
    assert again.equals(table)
    with pytest.raises(UserError, match="none of its 1 images has a frame"):
        predict(
            world,
            model,
            reference(tmp_path, "far", {"z.png": [("Opacity", (0, 0, 9, 9))]}, "test"),
            tmp_path / "far.parquet",
        )


def roles(world: dict, folder: Path, *told: dict, images: object = ()) -> pl.DataFrame:
    reference_images.run_roles(annotations=[one["path"] for one in told], patients=world["patients"], images=images,
                    output=str(folder / "roles.tsv"), references=told, findings=FINDINGS)  # fmt: skip
    return read_table(folder / "roles.tsv")


def test_no_patient_is_learnt_and_tested(world, tmp_path):
    table = roles(world, tmp_path, world["people"], world["test"], images=world["images"])
    assert list(table.columns) == list(ROLES)
    assert table.select("set", "role", "images", "patients").rows() == [
        ("people", "train", 5, 4), ("test", "test", 2, 1), ("synthetic", "train", 5, 3),
    ]  # fmt: skip
    # another film of a patient whose healthy film is a source
    shared = reference(tmp_path, "shared", {"h5.png": [("Opacity", (0, 0, 9, 9))]}, "test")
    with pytest.raises(UserError, match=r"in_two_roles: a patient of shared \(test\) is also in synthetic \(train\)"):
        roles(world, tmp_path, shared, images=world["images"])
    roles(world, tmp_path, shared)


def test_pictures_of_a_reference_lie_in_a_folder_or_a_sheet(world, tmp_path):
    reference = {name: world["people"][name] for name in ("name", "format", "path", "image_id")}
    (tmp_path / "pictures/deep").mkdir(parents=True)
    for name in ("r0", "deep/r2", "other"):
        cv2.imwrite(str(tmp_path / f"pictures/{name}.png"), np.zeros((9, 9), np.uint8))
    out = str(tmp_path / "images.parquet")
    inputs = {"annotations": reference["path"], "output": out, "reference": reference}
    reference_images.run_listing(pictures=str(tmp_path / "pictures"), **inputs)
    table = read_table(out)
    check_columns(table, PICTURES, "images")
    assert table.select("image_id", "subject_id").rows() == [("r0", "r0"), ("r2", "r2")]
    assert Path(table["path"][1]) == tmp_path / "pictures/deep/r2.png"
    shutil.copy(tmp_path / "pictures/r0.png", tmp_path / "pictures/deep/r0.png")
    with pytest.raises(UserError, match=r"semisyn\.references\.people\.images: .*r0\.png and .*r0\.png have the same"):
        reference_images.run_listing(pictures=str(tmp_path / "pictures"), **inputs)
    sheet = tmp_path / "pictures/sheet.csv"
    sheet.write_text("image_id,image_path,subject_id\nr0,deep/r0.png,anna\nr3,r3.png,\n", encoding="utf-8")
    reference_images.run_listing(pictures=str(sheet), **inputs)
    assert read_table(out).select("image_id", "subject_id").rows() == [("r0", "anna"), ("r3", "r3")]
    assert read_table(out)["view"].to_list() == [None, None]
    sheet.write_text("image_id,image_path,view\nr0,deep/r0.png,PA\nr3,r3.png,\n", encoding="utf-8")
    reference_images.run_listing(pictures=str(sheet), **inputs)
    assert read_table(out)["view"].to_list() == ["PA", None]
    sheet.write_text("image_id,image_path\nz9,deep/r0.png\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"which has none of the 5 images of .*: correct this path, or semisyn\."):
        reference_images.run_listing(pictures=str(sheet), **inputs)
    sheet.write_text("image_id,file\nr0,deep/r0.png\n", encoding="utf-8")
    with pytest.raises(UserError, match="lacks the column image_path"):
        reference_images.run_listing(pictures=str(sheet), **inputs)


def test_roles_say_what_was_left_out(world, tmp_path):
    strange = reference(tmp_path, "strange", {"a.png": [("Opacity", (0, 0, 9, 9)), ("Scapula", (0, 0, 9, 9))]})
    table = roles(world, tmp_path, strange)
    assert json.loads(table["excluded_regions"][0]) == {"no finding for Scapula": 1}
    assert table["boxes"].to_list() == [1]


@pytest.mark.skipif(find_spec("ultralytics") is not None, reason="ultralytics is installed here")
def test_an_engine_whose_package_is_missing_says_so():
    engine_settings = {"plan": "yolo11n.yaml", "checkpoint": "", "image_size": 64, "batch": 2}
    with pytest.raises(UserError, match="whose package is not installed here: run snakemake with --sdm conda"):
        engine_module("cxr.semisyn.detectors", "ultralytics").load(Setup(engine_settings))
    with pytest.raises(
        UserError, match=r"detectors\.engine is 'yolo', which does not exist: choose one of lite, ultra"
    ):
        engine_module("cxr.semisyn.detectors", "yolo").load(Setup(engine_settings))
