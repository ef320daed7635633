"""Every engine of the stages that read images makes the same kind of file as `lite`, from the same frames.

The paper's nets stand here with small or untrained weights in their true formats. `cxas` and `ultralytics` live in
environments of their own and are held to the same by their tests (`make test-cxas`, `make test-ultralytics`).
"""

import re
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest

import tiny_diffusion
import tiny_hybridgnet
import tiny_yolo
from conftest import MAKEFILE, ROOT
from cxr.base.engines import engine_names
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_table
from cxr.base.vocabulary import ANATOMY_LABELS, BOX_CLASSES, ORGAN_LABELS
from cxr.geometry.affine import to_original
from cxr.imaging.anatomy import segment_anatomy as anatomy
from cxr.imaging.anomaly import map_anomalies as anomaly
from cxr.imaging.boxes import detect_boxes as boxes
from cxr.imaging.boxes import scaled_yolov4
from cxr.imaging.organs import segment_organs as organs
from cxr.imaging.weights.yolo import convert_scaled_yolov4
from cxr.workflow.engine_files import find_package
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings, parse_section

SHARD = "02"
"""The largest shard of the finished run on the slice: its frames, organs and anomaly maps go in."""
Prepared = tuple[dict, dict[str, str]]
"""What a test changes in a stage's settings, and the files its engine reads."""


def lite(folder: Path, results: Path) -> Prepared:
    return {}, {}


def hybridgnet(folder: Path, results: Path) -> Prepared:
    return {}, {"weights": tiny_hybridgnet.publish(folder, tiny_hybridgnet.told(tiny_hybridgnet.coarse_ovals()))}


def runs_of(mask: np.ndarray) -> str:
    edges = np.flatnonzero(np.diff(mask.ravel(), prepend=0, append=0))
    return " ".join(f"{start + 1} {end - start}" for start, end in edges.reshape(-1, 2))


def chexmask(folder: Path, results: Path) -> Prepared:
    """The organs of `lite` in pixels of the originals, as rows of the published table."""
    lines = ["dicom_id,Dice RCA (Mean),Landmarks,Right Lung,Left Lung,Heart,Height,Width"]
    with Shard(results / f"frames/{SHARD}.h5") as frames, Shard(results / f"organs/{SHARD}.h5") as organs_of:
        for name in organs_of.ids:
            shape, affine = tuple(map(int, frames.get("original_shape", name))), frames.get("to_original", name)
            masks = [to_original(organs_of.masks(name)[label].astype(np.int8), affine, shape) for label in ORGAN_LABELS]
            lines.append(",".join([name, "0.8", "", *map(runs_of, masks), *map(str, shape)]))
    (folder / "rows.csv").write_text("\n".join([*lines, ""]))
    return {"chexmask": {"table": "elsewhere"}}, {"rows": str(folder / "rows.csv")}


def radedit(folder: Path, results: Path) -> Prepared:
    return {"radedit": {"steps": 2, "dtype": "float32"}}, tiny_diffusion.write_radedit(folder)


def table(folder: Path, results: Path) -> Prepared:
    path = str(folder / "boxes.csv")
    with Shard(results / f"frames/{SHARD}.h5") as frames:
        rows = [f"{name},1,2,30,40,0.5,ILD" for name in frames.ids]
    Path(path).write_text("\n".join(["image_id,x1,y1,x2,y2,confidence,class_name", *rows, ""]))
    return {"table": path}, {"table": path}


def scaled(folder: Path, results: Path) -> Prepared:
    files = {}
    for number, name in enumerate(scaled_yolov4.INPUTS):
        source = tiny_yolo.save(tiny_yolo.tiny_net(number), folder / f"{name}.pt", None)
        files[name] = str(folder / f"{name}.safetensors")
        convert_scaled_yolov4(source, Path(files[name]))
    return {}, files


ENGINES = {
    "organs": {"lite": lite, "hybridgnet": hybridgnet, "chexmask": chexmask},
    "anomaly": {"lite": lite, "radedit": radedit},
    "anatomy": {"lite": lite},
    "boxes": {"lite": lite, "table": table, "scaled_yolov4": scaled},
}
ELSEWHERE = {"anatomy": "test_anatomy_cxas.py", "boxes": "test_boxes_ultralytics.py"}
"""Where the one engine of a stage is tested that lives in an environment of its own."""


@pytest.mark.parametrize("stage", ENGINES)
def test_every_engine_is_held_to_it(stage):
    missing = set(engine_names(find_package(stage))) - ENGINES[stage].keys()
    told = re.fullmatch(r"test_\w+?_(\w+)\.py", ELSEWHERE[stage]).group(1) if stage in ELSEWHERE else None
    assert missing == ({told} if told else set())
    if told:
        (file,) = (ROOT / "tests").rglob(ELSEWHERE[stage])
        text = file.read_text()
        assert "run_shard(" in text
        assert f"test-{told}:" in MAKEFILE


def run(stage: str, module, engine: str, inputs: dict, tmp_path: Path, suffix: str) -> Path:
    changes, files = ENGINES[stage][engine](tmp_path, Path(next(iter(inputs.values()))).parents[1])
    options = stage_options(parse_section(Settings, {stage: {"engine": engine} | changes}))[stage]
    output = tmp_path / f"{engine}{suffix}"
    module.run_shard(
        **inputs, **files, output=str(output), excluded=str(tmp_path / f"{engine}.excluded.parquet"),
        **settings_arguments(module.run_shard, options), threads=1, compute={"device": "cpu", "batch": 2},
        attrs={"stage": stage, "settings": options, "code_digest": ""},
    )  # fmt: skip
    return output


def shape_of(path: Path) -> dict:
    """What a reader relies on in a shard: names, types and sizes of its fields, and which facts stand beside them."""
    with h5py.File(path) as file:
        fields = {name: (str(data.dtype), data.shape[1:], sorted(data.attrs)) for name, data in file.items()}
        return fields | {"": sorted(file.attrs)}


def conserved(ids: list[str], kept: list[str], excluded: Path) -> None:
    assert kept
    assert sorted([*kept, *read_table(excluded)["image_id"]]) == sorted(ids)


@pytest.mark.parametrize("engine", ENGINES["organs"])
def test_organs(engine, workflow_run, tmp_path):
    frames = workflow_run / f"results/frames/{SHARD}.h5"
    made = run("organs", organs, engine, {"frames": str(frames)}, tmp_path, ".h5")
    ours, theirs = shape_of(made), shape_of(workflow_run / f"results/organs/{SHARD}.h5")
    (_, (_, *ours_size), ours_attrs), (_, (_, *size), attrs) = ours.pop("mask"), theirs.pop("mask")
    assert (ours_size, ours_attrs) == (size, attrs)  # an engine may give more organs than others
    assert ours == theirs
    with Shard(frames) as shard, Shard(made) as masks:
        assert {*ORGAN_LABELS} <= {*masks.labels()}
        conserved(shard.ids, masks.ids, tmp_path / f"{engine}.excluded.parquet")


def shards_alike(stage: str, module, engine: str, inputs: dict[str, Path], tmp_path: Path) -> Path:
    """Run an engine; its shard must have the finished run's form, and account for every image of the first input."""
    made = run(stage, module, engine, {name: str(path) for name, path in inputs.items()}, tmp_path, ".h5")
    first = next(iter(inputs.values()))
    assert shape_of(made) == shape_of(first.parents[1] / stage / first.name)
    with Shard(first) as given, Shard(made) as shard:
        assert len(given.ids) > 2
        conserved(given.ids, shard.ids, tmp_path / f"{engine}.excluded.parquet")
    return made


@pytest.mark.parametrize("engine", ENGINES["anomaly"])
def test_anomaly(engine, workflow_run, tmp_path):
    # an image without organs has no map
    inputs = {stage: workflow_run / f"results/{stage}/{SHARD}.h5" for stage in ("organs", "frames")}
    shards_alike("anomaly", anomaly, engine, inputs, tmp_path)


@pytest.mark.parametrize("engine", ENGINES["anatomy"])
def test_anatomy(engine, workflow_run, tmp_path):
    inputs = {stage: workflow_run / f"results/{stage}/{SHARD}.h5" for stage in ("anomaly", "organs", "frames")}
    with Shard(shards_alike("anatomy", anatomy, engine, inputs, tmp_path)) as masks:
        assert masks.labels() == list(ANATOMY_LABELS)


@pytest.mark.parametrize("engine", ENGINES["boxes"])
def test_boxes(engine, workflow_run, tmp_path, monkeypatch):
    monkeypatch.setattr(scaled_yolov4, "IMAGE_SIZE", 128)
    frames = workflow_run / f"results/frames/{SHARD}.h5"
    made = read_table(run("boxes", boxes, engine, {"frames": str(frames)}, tmp_path, ".parquet"))
    assert made.schema == pl.Schema(boxes.SCHEMA)
    assert {*made["class_name"]} <= {*BOX_CLASSES}
    assert made.filter(pl.col("confidence").is_between(0, 1), pl.col("x1") < pl.col("x2"), pl.col("y2") <= 512).equals(
        made
    )
    with Shard(frames) as shard:
        conserved(shard.ids, sorted(set(made["image_id"])), tmp_path / f"{engine}.excluded.parquet")
