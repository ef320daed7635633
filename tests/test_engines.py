"""Every engine of the stages that read images makes the same kind of file as `lite`, from the same frames.

The paper's nets stand here with small or untrained weights in their true formats. `cxas` and `ultralytics` live in
environments of their own and are held to the same by their tests (`make test-cxas`, `make test-ultralytics`).
"""

from collections.abc import Callable
from pathlib import Path

import h5py
import polars as pl
import pytest

import tiny_diffusion
import tiny_hybridgnet
import tiny_yolo
from ils.anomaly import stage as anomaly
from ils.boxes import scaled_yolov4
from ils.boxes import stage as boxes
from ils.core.labels import BOX_CLASSES, ORGAN_LABELS
from ils.core.options import stage_options
from ils.core.settings import Settings
from ils.core.store import Shard, read_table
from ils.organs import stage as organs
from ils.weights.scaled_yolov4 import convert_scaled_yolov4

SHARD = "02"
"""The largest shard of the finished run on the slice: its frames, organs and anomaly maps go in."""
Prepared = tuple[dict, dict[str, str]]
"""What a test changes in a stage's settings, and the files its engine reads."""


def lite(folder: Path) -> Prepared:
    return {}, {}


def hybridgnet(folder: Path) -> Prepared:
    return {}, {"weights": tiny_hybridgnet.publish(folder, tiny_hybridgnet.told(tiny_hybridgnet.coarse_ovals()))}


def chexmask(folder: Path) -> Prepared:
    columns = ("dicom_id,Dice RCA (Mean),Dice RCA (Max),Landmarks,Left Lung,Right Lung,Heart,Height,Width",)
    (folder / "masks.csv").write_text("\n".join((*columns, "another,0.9,0.9,,1 5,9 5,20 5,512,512", "")))
    return {"chexmask": {"table": str(folder / "masks.csv")}}, {"table": str(folder / "masks.csv")}


def radedit(folder: Path) -> Prepared:
    return {"radedit": {"steps": 2, "dtype": "float32"}}, tiny_diffusion.write_radedit(folder)


def table(folder: Path) -> Prepared:
    path = str(folder / "boxes.csv")
    Path(path).write_text("image_id,x1,y1,x2,y2,confidence,class_name\nanother,1,2,30,40,0.5,ILD\n")
    return {"table": path}, {"table": path}


def scaled(folder: Path) -> Prepared:
    files = {}
    for number, name in enumerate(scaled_yolov4.INPUTS):
        source = tiny_yolo.save(tiny_yolo.tiny_net(number), folder / f"{name}.pt", None)
        files[name] = str(folder / f"{name}.safetensors")
        convert_scaled_yolov4(source, Path(files[name]))
    return {"scaled_yolov4": {"image_size": 128}}, files


def run(stage: str, module, engine: str, prepare: Callable, inputs: dict, tmp_path: Path, suffix: str) -> Path:
    changes, files = prepare(tmp_path)
    options = stage_options(Settings.model_validate({stage: {"engine": engine} | changes}))[stage]
    output = tmp_path / f"{engine}{suffix}"
    module.run_shard(
        **inputs, **files, output=str(output), excluded=str(tmp_path / f"{engine}.excluded.parquet"),
        options=module.Options(**options), attrs={"stage": stage, "settings": options},
        threads=1, compute={"device": "cpu", "batch": 2},
    )  # fmt: skip
    return output


def shape_of(path: Path) -> dict:
    """What a reader relies on in a shard: names, types and sizes of its fields, and which facts stand beside them."""
    with h5py.File(path) as file:
        fields = {name: (str(data.dtype), data.shape[1:], sorted(data.attrs)) for name, data in file.items()}
        return fields | {"": sorted(file.attrs)}


def conserved(ids: list[str], kept: list[str], excluded: Path) -> None:
    assert sorted([*kept, *read_table(excluded)["image_id"]]) == sorted(ids)


@pytest.mark.parametrize("prepare", [lite, hybridgnet, chexmask])
def test_organs(prepare, workflow_run, tmp_path):
    frames = workflow_run / f"results/frames/{SHARD}.h5"
    made = run("organs", organs, prepare.__name__, prepare, {"frames": str(frames)}, tmp_path, ".h5")
    ours, theirs = shape_of(made), shape_of(workflow_run / f"results/organs/{SHARD}.h5")
    (_, (_, *ours_size), ours_attrs), (_, (_, *size), attrs) = ours.pop("mask"), theirs.pop("mask")
    assert (ours_size, ours_attrs) == (size, attrs)  # an engine may give more organs than others
    assert {*ours} == {*theirs}
    with Shard(frames) as shard, Shard(made) as masks:
        assert {*ORGAN_LABELS} <= {*masks.labels()}
        conserved(shard.ids, masks.ids, tmp_path / f"{prepare.__name__}.excluded.parquet")


@pytest.mark.parametrize("prepare", [lite, radedit])
def test_anomaly(prepare, workflow_run, tmp_path):
    inputs = {stage: str(workflow_run / f"results/{stage}/{SHARD}.h5") for stage in ("frames", "organs")}
    made = run("anomaly", anomaly, prepare.__name__, prepare, inputs, tmp_path, ".h5")
    assert shape_of(made).keys() == shape_of(workflow_run / f"results/anomaly/{SHARD}.h5").keys()
    for name, expected in shape_of(workflow_run / f"results/anomaly/{SHARD}.h5").items():
        assert name == "" or shape_of(made)[name] == expected
    with Shard(inputs["organs"]) as shard, Shard(made) as maps:
        assert len(shard.ids) > 2
        conserved(shard.ids, maps.ids, tmp_path / f"{prepare.__name__}.excluded.parquet")


@pytest.mark.parametrize(("engine", "prepare"), [("lite", lite), ("table", table), ("scaled_yolov4", scaled)])
def test_boxes(engine, prepare, workflow_run, tmp_path):
    frames = workflow_run / f"results/frames/{SHARD}.h5"
    made = read_table(run("boxes", boxes, engine, prepare, {"frames": str(frames)}, tmp_path, ".parquet"))
    assert made.schema == pl.Schema(boxes.SCHEMA)
    assert {*made["class_name"]} <= {*BOX_CLASSES}
    assert made.filter(pl.col("confidence").is_between(0, 1), pl.col("x1") < pl.col("x2"), pl.col("y2") <= 512).equals(
        made
    )
    with Shard(frames) as shard:
        assert {*made["image_id"]} <= {*shard.ids}
        conserved(shard.ids, shard.ids, tmp_path / f"{engine}.excluded.parquet")
