"""The engine scaled_yolov4 on tiny checkpoints of the published form: conversion, net, ensemble, wrong files."""

from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from boxes_frames import alike_in_any_batch, frames, write_frames
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.base.vocabulary import BOX_CLASSES
from cxr.imaging.boxes import nets, scaled_yolov4
from cxr.imaging.boxes.detect_boxes import SCHEMA, run_shard
from cxr.imaging.boxes.engine import load_engine
from cxr.imaging.boxes.scaled_yolov4 import INPUTS, PUBLISHED
from cxr.imaging.boxes.scaled_yolov4.network import Network, decode
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.imaging.weights import pickles
from cxr.imaging.weights.pickles import Stub
from cxr.imaging.weights.yolo import convert_scaled_yolov4
from cxr.nets import tensors
from tiny_yolo import ANCHORS, PACKAGE, STRIDES, expected, plan, save, tiny_net, tiny_plan

ORDERS = [[*PUBLISHED[shift:], *PUBLISHED[:shift]] for shift in range(4)] + [None]
"""Class names of the folds, each in another order; the last has none, so its order is the published one."""


@pytest.fixture(autouse=True)
def small_input(monkeypatch):
    monkeypatch.setattr(scaled_yolov4, "IMAGE_SIZE", 128)


def options(**changes) -> BoxesSettings:
    plain = {"engine": "scaled_yolov4", "floor": 0.5, "nms_iou": 0.1, "max_boxes": 50}
    return BoxesSettings.from_dict(plain | {"excluded_classes": ["Pneumothorax"]} | changes)


@pytest.fixture(scope="module")
def folds(tmp_path_factory):
    """Five tiny nets and the files made from their checkpoints, named as the engine's inputs."""
    folder = tmp_path_factory.mktemp("folds")
    made, files = [], {}
    for number, (name, names) in enumerate(zip(INPUTS, ORDERS, strict=True)):
        net = tiny_net(number)
        source = save(net, folder / f"scaled_yolo_fold_{number}.pt", names, half=number % 2 == 0)
        files[name] = str(folder / f"{name}.safetensors")
        convert_scaled_yolov4(source, files[name])
        made.append(net)
    return made, files


@pytest.fixture
def engine(folds):
    return lambda **changes: load_engine(options(**changes), Setup(files=folds[1], device="cpu", batch=3))


# the net


def test_the_full_plan_has_the_published_nets_tensors():
    with torch.device("meta"):
        net = Network(plan(80), STRIDES)
        small = Network(plan(14), STRIDES)
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert len(shapes) == 1186
    assert sum(parameter.numel() for parameter in net.parameters()) == 127_590_576
    assert shapes["model.0.conv.weight"] == (32, 3, 3, 3)
    assert shapes["model.8.m.14.cv2.conv.weight"] == (256, 256, 3, 3)
    assert shapes["model.13.cv5.conv.weight"] == (512, 2048, 1, 1)
    assert shapes["model.40.bn.running_var"] == (1024,)
    assert shapes["model.42.m.3.bias"] == (4 * 85,)
    assert shapes["model.42.anchor_grid"] == (4, 1, 4, 1, 1, 2)
    assert small.state_dict()["model.42.m.0.weight"].shape == (4 * 19, 256, 1, 1)


def test_the_net_computes_its_formulas():
    net = tiny_net(3, classes=5).double()  # in float32 the deep net makes much of how a sum is ordered
    pictures = torch.rand(2, 3, 128, 192, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.inference_mode():
        boxes, scores = net(pictures)
    wanted = expected(net.state_dict(), tiny_plan(5), pictures)
    assert boxes.shape == (2, 4 * (16 * 24 + 8 * 12 + 4 * 6 + 2 * 3), 4)
    assert scores.shape[2] == 5
    assert scores.max() - scores.min() > 0.5
    assert torch.allclose(boxes, wanted[0], atol=1e-6, rtol=0)
    assert torch.allclose(scores, wanted[1], atol=1e-9, rtol=0)


def test_a_cell_is_decoded_by_hand():
    """Row 1, column 2, stride 16, anchor (61, 45): s = 0.75: centre 2 s - 0.5 + cell, sides (2 s)² = 2.25 times."""
    raw = torch.zeros(1, 2, 7, 2, 3)
    raw[0, 1, :, 1, 2] = torch.logit(torch.tensor([0.75, 0.5, 0.75, 0.25, 0.5, 0.2, 0.9]))
    boxes, scores = decode(raw, 16.0, torch.tensor([[10.0, 10.0], [61.0, 45.0]]).view(1, 2, 1, 1, 2))
    assert boxes.shape == (1, 2, 2, 3, 4)
    x, y, w, h = (1 + 2) * 16, (0.5 + 1) * 16, 2.25 * 61, 0.25 * 45
    assert boxes[0, 1, 1, 2].tolist() == pytest.approx([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    assert scores[0, 1, 1, 2].tolist() == pytest.approx([0.1, 0.45])
    assert boxes[0, 0, 0, 0].tolist() == pytest.approx([8 - 5, 8 - 5, 8 + 5, 8 + 5])  # zeros: the middle of cell 0, 0
    assert scores[0, 0, 0, 0].tolist() == [0.25, 0.25]


# conversion


@pytest.mark.parametrize("half", [True, False])
def test_a_published_checkpoint_keeps_its_numbers_and_facts(tmp_path, half):
    net = tiny_net(7)
    source = save(net, tmp_path / "scaled_yolo_fold_0.pt", ["a"] * 14, half=half)
    with pytest.raises(ModuleNotFoundError):  # its classes are not here
        torch.load(source, weights_only=False)
    told = convert_scaled_yolov4(source, tmp_path / "fold0.safetensors")
    weights, facts = tensors.read_weights(tmp_path / "fold0.safetensors", "scaled_yolov4")
    state = net.state_dict()
    assert weights.keys() == state.keys()
    for name, tensor in state.items():
        wanted = tensor.half().float() if half and tensor.is_floating_point() else tensor
        assert torch.equal(weights[name], wanted), name
    assert facts == {
        "kind": "scaled_yolov4",
        "yaml": tiny_plan(),
        "names": ["a"] * 14,
        "stride": STRIDES,
        "eps": 1e-3,
    }
    assert told == {"tensors": len(state), "values": sum(t.numel() for t in state.values()), "names": ["a"] * 14}
    assert weights["model.42.anchor_grid"].view(4, 8).tolist() == [[n / 8 for n in row] for row in ANCHORS]


def test_the_same_checkpoint_gives_the_same_bytes(tmp_path):
    source = save(tiny_net(7), tmp_path / "net.pt", None)
    for name in "ab":
        convert_scaled_yolov4(source, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_checkpoints_are_refused(tmp_path):
    net = tiny_net(0)
    net.model = net.model[:-1]
    with pytest.raises(UserError, match=rf"net\.pt cannot be used: it contains {PACKAGE}\.yolo\.Model, not a Scaled"):
        convert_scaled_yolov4(save(net, tmp_path / "net.pt", None), tmp_path / "out")
    save(tiny_net(0), tmp_path / "net.pt", None, activation="LeakyReLU")
    with pytest.raises(UserError, match="its net uses LeakyReLU where ScaledYOLOv4 has Mish: delete it and get it"):
        convert_scaled_yolov4(tmp_path / "net.pt", tmp_path / "out")
    torch.save({"model": {"weight": torch.zeros(3)}}, tmp_path / "state.pt")
    with pytest.raises(UserError, match=r"state\.pt cannot be used: it holds no network: delete it and get it again"):
        convert_scaled_yolov4(tmp_path / "state.pt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def stub(kind: str, **state) -> Stub:
    made = type("Stub", (Stub,), {"kind": kind})()
    made.state.update(state)
    return made


def test_modules_that_no_net_has_are_refused(tmp_path, monkeypatch):
    detect = stub("yolo.Detect", _buffers={"anchor_grid": None})
    endless = stub("common.Conv")
    endless.state["_modules"] = {"again": endless}
    for layers, told in (
        ([stub("yolo.Detect", _buffers=None)], r"it contains yolo\.Model, not a ScaledYOLOv4 detector"),
        ([endless, 3], r"it contains yolo\.Model, not a ScaledYOLOv4 detector"),
        ([endless, detect], r"its net cannot be rebuilt \(one of its modules contains itself\)"),
        ([detect], r"its net cannot be rebuilt \(its batch norms were fused away\)"),
    ):
        inner = stub("Sequential", _modules=dict(enumerate(layers)))
        net = stub("yolo.Model", _modules={"model": inner}, yaml=tiny_plan(), stride=STRIDES)
        monkeypatch.setattr(pickles, "read_checkpoint", lambda source, net=net: {"model": net})
        with pytest.raises(UserError, match=rf"net\.pt cannot be used: {told}: delete it and get it again"):
            convert_scaled_yolov4(tmp_path / "net.pt", tmp_path / "out")


# the engine


@torch.inference_mode()
def brute(net, names, picture: np.ndarray, floor: float, iou: float) -> list[tuple]:
    """One fold's (box in frame pixels, score, class name), one pair of boxes after another."""
    grey = torch.from_numpy(picture).float()[None, None].expand(1, 3, -1, -1) / 255
    boxes, scores = (values[0].double().numpy() for values in net.half().float()(grey))
    found = [
        (boxes[row], scores[row, column], (names or PUBLISHED)[column])
        for row, column in zip(*np.nonzero(scores >= floor), strict=True)
    ]
    kept = greedy(found, iou)[:300]
    return [(np.clip((box - 32) * 4, 0, 512), score, name) for box, score, name in kept]


def greedy(found: list[tuple], iou: float) -> list[tuple]:
    kept = []
    for box, score, name in sorted(found, key=lambda one: (-one[1], *one[0])):
        if all(other != name or overlap(box, rival) <= iou for rival, _, other in kept):
            kept.append((box, score, name))
    return kept


def overlap(a, b) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def test_the_ensemble_is_what_the_public_evaluation_does(tmp_path):
    """Five folds in half precision with their own class orders; a picture of 128 px in a grey border of 32."""
    made, files = [tiny_net(number) for number in range(5)], {}
    for net, name, names in zip(made, INPUTS, ORDERS, strict=True):
        files[name] = str(tmp_path / name)
        convert_scaled_yolov4(save(net, tmp_path / f"{name}.pt", names), files[name])
    frame = frames(1)[0]
    picture = np.full((192, 192), 114, np.uint8)
    picture[32:160, 32:160] = cv2.resize(frame, (128, 128), interpolation=cv2.INTER_AREA)
    loose = [one for net, names in zip(made, ORDERS, strict=True) for one in brute(net, names, picture, 0.7, 0.65)]
    solid = [one for one in loose if one[0][2] > one[0][0] and one[0][3] > one[0][1]]
    wanted = [(box.round(2), score, name) for box, score, name in greedy(solid, 0.5)[:50]]
    wanted = [one for one in wanted if one[0][2] > one[0][0] and one[0][3] > one[0][1]]
    found = load_engine(options(floor=0.7), Setup(files=files, device="cpu", batch=1)).detect_batch([frame])[0]
    assert 40 < len(wanted) < 50  # slivers are no boxes once rounded
    assert len(set(found.class_names)) >= 3
    assert found.class_names == [name for _, _, name in wanted]
    assert found.confidence.tolist() == [round(score, 6) for _, score, _ in wanted]
    assert found.boxes.tolist() == [box.tolist() for box, _, _ in wanted]
    assert found.boxes.dtype == found.confidence.dtype == np.float64


@pytest.mark.slow
def test_half_precision_is_for_a_gpu_and_moves_boxes_little(engine, monkeypatch):
    """On the CPU's own half precision, which the engine uses on a GPU alone."""
    assert scaled_yolov4.number_type(torch.device("cuda")) == torch.float16
    plain = engine()
    assert plain.dtype == torch.float32  # on a CPU
    monkeypatch.setattr(scaled_yolov4, "number_type", lambda *_: torch.float16)
    half = engine()
    convolutions = {part.weight.dtype for net, _ in half.folds for part in net.modules() if hasattr(part, "stride")}
    assert convolutions == {torch.float16}
    picture = torch.rand(1, 3, 192, 192, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        for (net, _), (rounded, _) in zip(plain.folds, half.folds, strict=True):
            (boxes, scores), (near, alike) = net(picture), rounded(picture.half())
            assert near.dtype == alike.dtype == torch.float32
            # a net of random weights makes much of roundings, and far more of another picture
            other = net(picture.flip(3))
            assert 0 < (near - boxes).abs().median() < 0.3 * (other[0] - boxes).abs().median()
            assert (alike - scores).abs().median() < 0.3 * (other[1] - scores).abs().median()
            # beyond 128 px half precision has steps of an eighth of a pixel
            far = near[near > 128]
            assert (far % 0.125 != 0).float().mean() > 0.5
    assert len(half.detect_batch(frames(1))[0].boxes) > 3


def test_batches_change_nothing(engine):
    pictures = frames(4)
    loaded = engine()
    assert loaded.batch == 3
    together = alike_in_any_batch(loaded, pictures)
    assert all(one.confidence[-1] >= 0.5 for one in together)


def test_limits_of_the_stage(engine):
    picture = frames(1)
    every = engine(max_boxes=1000).detect_batch(picture)[0]
    few = engine(max_boxes=5).detect_batch(picture)[0]
    assert few.confidence.tolist() == every.confidence[:5].tolist()
    assert few.boxes.tolist() == every.boxes[:5].tolist()
    high = engine(max_boxes=1000, floor=0.6).detect_batch(picture)[0]
    assert high.confidence.tolist() == every.confidence[every.confidence >= 0.6].tolist()
    assert engine(floor=1.0).detect_batch(picture)[0].boxes.shape == (0, 4)


def test_the_frame_gets_a_grey_border(engine, monkeypatch):
    frame = np.full((512, 512), 254, np.uint8)
    frame[:, 256:] = 255
    kept = engine().prepare_image(frame)
    assert kept.shape == (192, 192)
    assert set(np.unique(kept)) == {114, 254, 255}
    assert (kept[32:160, 32:96] == 254).all()
    assert (kept[32:160, 96:160] == 255).all()
    monkeypatch.setattr(scaled_yolov4, "IMAGE_SIZE", 1024)
    assert engine().prepare_image(frame)[500, 500] == 254


# files that are none


@pytest.fixture
def changed(folds, tmp_path):
    """Return a function that loads the engine with another file as the third fold."""

    def load(path):
        return load_engine(options(), Setup(files=folds[1] | {"fold2": str(path)}, device="cpu"))

    return load


def rewritten(folds, path, change):
    weights, facts = tensors.read_weights(folds[1]["fold2"], "scaled_yolov4")
    change(weights, facts)
    tensors.write_weights(path, tensors.tensor_kinds(weights), weights.get, facts)
    return path


FAULTS = {
    "missing": (
        lambda w, f: w.pop("model.1.bn.bias"),
        r"holds weights that do not fit the net \(it lacks model.1",
    ),
    "more": (lambda w, f: w.update(x=torch.zeros(1)), r"holds weights that do not fit the net \(the net has no x"),
    "shape": (
        lambda w, f: w.update({"model.0.conv.weight": torch.zeros(8, 1, 3, 3)}),
        r"holds weights that do not fit the net \(the shape differs for model.0.conv.weight",
    ),
    "another width": (
        lambda w, f: f["yaml"].update(width_multiple=0.5),
        r"the shape differs for model\S+ and \d+ more",
    ),
    "unknown layer": (
        lambda w, f: f["yaml"]["backbone"].append([-1, 1, "C3", [64]]),
        r"holds a plan of layers that cannot be built \(unknown layer type C3 with the arguments \[64\]\)",
    ),
    "no plan": (lambda w, f: f.update(yaml=None), "holds a plan of layers that cannot be built"),
    "forward": (lambda w, f: f["yaml"]["head"][0].__setitem__(0, 30), "layer 13 takes its input from a later layer"),
    "names": (lambda w, f: f.update(names=["ILD"]), r"cannot be built \(1 class names for 14 classes\)"),
    "strides": (lambda w, f: f["stride"].pop(), r"the strides \[8.0, 16.0, 32.0\] are not a positive number for each"),
    "no stride": (lambda w, f: f.update(stride=[8.0, 16.0, 32.0, 0.0]), "cannot be built"),
    "width": (lambda w, f: f["yaml"].update(width_multiple=float("inf")), "cannot be built"),
    "type": (
        lambda w, f: w.update({"model.0.conv.weight": w["model.0.conv.weight"].int()}),
        "holds numbers of a type that does not fit the net",
    ),
    "eps": (lambda w, f: f.update(eps=0.0), "has the invalid batch normalisation eps 0.0"),
    "kind": (lambda w, f: f.update(kind="ultralytics"), "holds no weights of scaled_yolov4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_does_not_fit_is_refused(folds, changed, tmp_path, fault):
    change, message = FAULTS[fault]
    path = rewritten(folds, tmp_path / "fold2.safetensors", change)
    with pytest.raises(UserError, match=message) as refused:
        changed(path)
    sentence = str(refused.value)
    assert sentence.startswith(str(path))
    assert sentence.endswith(": delete it and run snakemake weights again (docs/how-to/models.md)")
    assert "\n" not in sentence


def test_damaged_and_foreign_files_are_refused(folds, changed, tmp_path):
    whole = Path(folds[1]["fold2"]).read_bytes()
    foreign = tmp_path / "foreign"
    save_file({"weight": torch.zeros(2)}, foreign)
    with pytest.raises(UserError, match="foreign holds no weights of scaled_yolov4: delete it and run snakemake"):
        changed(foreign)
    for name, content in {"cut": whole[:-40], "empty": b"", "page": b"<html>" * 50, "header": whole[:100]}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} is missing or damaged \(.*\): delete it and run snakemake"):
            changed(tmp_path / name)
    with pytest.raises(UserError, match="nowhere is missing or damaged"):
        changed(tmp_path / "nowhere")


def test_a_class_that_is_none_of_vinbigdata_is_refused(folds, changed, tmp_path):
    names = ["Cat", *PUBLISHED[1:]]
    path = rewritten(folds, tmp_path / "fold2", lambda w, f: f.update(names=names))
    with pytest.raises(UserError, match="fold2 has a class 'Cat', which is not a VinBigData class"):
        changed(path)


def test_published_names_are_all_of_vinbigdata():
    assert sorted(PUBLISHED) == sorted(BOX_CLASSES)
    assert nets.class_indices(list(PUBLISHED), {}, "x").tolist() == [3, 0, 11, 5, 8, 13, 7, 1, 9, 6, 10, 2, 4, 12]


# the stage


def test_the_stage_writes_its_table_whatever_the_batch(folds, tmp_path):
    shard = write_frames(tmp_path / "frames.h5", 5)
    tables = []
    for batch in (1, 2, 8):
        outputs = {"output": tmp_path / f"{batch}.parquet", "excluded": tmp_path / f"{batch}.excluded.parquet"}
        compute = {"device": "cpu", "batch": batch}
        run_shard(frames=shard, options=options(), attrs={}, threads=1, compute=compute, **outputs, **folds[1])
        tables.append(outputs["output"].read_bytes())
    assert tables[0] == tables[1] == tables[2]
    table = read_table(tmp_path / "2.parquet")
    assert dict(table.schema) == SCHEMA
    assert sorted(set(table["image_id"])) == [f"i{number}" for number in range(5)]
    assert set(table["class_name"]) <= set(BOX_CLASSES)
    assert (table["is_used"] == (table["class_name"] != "Pneumothorax")).all()
    numbers = table.select("x1", "y1", "x2", "y2").to_numpy()
    assert numbers.min() >= 0
    assert numbers.max() <= 512
    assert table.select(((pl.col("x2") > pl.col("x1")) & (pl.col("y2") > pl.col("y1"))).all()).item()
    assert len(read_table(tmp_path / "2.excluded.parquet")) == 0


def test_numbers_that_are_none_exclude_the_image(folds, tmp_path):
    broken = tmp_path / "broken"
    weights = load_file(folds[1]["fold1"])
    weights["model.42.m.0.bias"][3] = torch.nan
    tensors.write_weights(
        broken, tensors.tensor_kinds(weights), weights.get, tensors.read_weights(folds[1]["fold1"], "scaled_yolov4")[1]
    )
    shard = write_frames(tmp_path / "frames.h5", 1)
    outputs = {"output": tmp_path / "out.parquet", "excluded": tmp_path / "excluded.parquet"}
    files = folds[1] | {"fold1": str(broken)}
    run_shard(frames=shard, options=options(), attrs={}, threads=1, **outputs, **files)
    row = read_table(outputs["excluded"]).row(0, named=True)
    assert (row["image_id"], row["reason"]) == ("i0", "engine_failure")
    assert row["detail"].startswith("the engine stopped with ArithmeticError in cxr.detection.proposals.boxes_above")
