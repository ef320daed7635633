"""The engine ultralytics in its own environment, on checkpoints saved by the package: `make test-ultralytics`."""

import copy
import os
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from boxes_frames import alike_in_any_batch, frames, write_frames
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.base.vocabulary import BOX_CLASSES
from cxr.imaging.boxes.detect_boxes import SCHEMA, run_shard
from cxr.imaging.boxes.engine import load_engine
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.imaging.boxes.ultralytics import QUIET
from cxr.imaging.weights.yolo import convert_ultralytics
from cxr.nets import tensors

os.environ |= QUIET | {"YOLO_CONFIG_DIR": tempfile.gettempdir()}
pytest.importorskip("ultralytics", reason="the package is in an environment of its own: make test-ultralytics")
from ultralytics import YOLO
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.torch_utils import strip_optimizer

NAMES = ["ILD", "Pleural effusion", "Lung Opacity"]
SIDE = 128
SPREAD = 90
"""Of the grey levels of its frames."""


def net(plan: str, names: list[str] = NAMES, channels: int = 3) -> DetectionModel:
    """A net of the package with random numbers that spread its scores."""
    torch.manual_seed(5)
    made = DetectionModel(plan, ch=channels, nc=len(names), verbose=False)
    made.names = dict(enumerate(names))
    head = made.model[-1]
    for branch in (*head.cv2, *head.cv3):
        nn.init.normal_(branch[-1].weight, 0, 0.1)
        nn.init.normal_(branch[-1].bias, 0.5, 0.3)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    # statistics of pictures, so that what it gives depends on the picture
    made.train()(nn.functional.interpolate(torch.rand(4, channels, 9, 9), SIDE, mode="bicubic"))
    made.eval()
    with torch.no_grad():  # no score is 1, for that would make ties
        pictures = torch.from_numpy(np.stack(frames(4, SPREAD))[:, None, ::4, ::4]).float() / 255
        raw = made(pictures.expand(-1, channels, -1, -1))[1]
        largest = raw.get("one2many", raw)["scores"].abs().max()
        for branch in head.cv3:
            branch[-1].weight *= 6 / largest
            branch[-1].bias *= 6 / largest
    return made


def saved(made: DetectionModel, path: Path, form: str) -> Path:
    """Save a net in one of the package's ways: by ``YOLO.save``, during training, or at the end of training."""
    if form == "save":
        model = YOLO("yolo11n.yaml")
        model.model = made
        model.save(path)
    else:
        entries = {"epoch": 3, "best_fitness": None, "model": None, "ema": copy.deepcopy(made).half(), "updates": 9}
        entries |= {"optimizer": None, "scaler": {}, "train_args": {"imgsz": 640}, "version": "8.4.190", "date": ""}
        torch.save(entries, path)
        if form == "stripped":
            strip_optimizer(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that gives (net, safetensors file) for a plan."""
    folder, known = tmp_path_factory.mktemp("ultralytics"), {}

    def make(plan: str = "yolo11n.yaml", names: tuple[str, ...] = tuple(NAMES), channels: int = 3):
        key = plan, names, channels
        if key not in known:
            model = net(plan, list(names), channels)
            target = folder / f"{len(known)}.safetensors"
            convert_ultralytics(saved(model, folder / f"{len(known)}.pt", "save"), target)
            known[key] = model, target
        return known[key]

    return make


def options(size=SIDE, **changes) -> BoxesSettings:
    plain = {"engine": "ultralytics", "floor": 0.5, "max_boxes": 300, "excluded_classes": ["Cardiomegaly"]}
    return BoxesSettings.from_dict(plain | {"ultralytics": {"image_size": size}} | changes)


def engine(path, class_names=None, size=SIDE, **changes):
    settings = options(size, class_names=class_names or {}, **changes)
    return load_engine(settings, Setup(files={"weights": str(path)}, device="cpu", batch=3))


# conversion


@pytest.mark.parametrize("form", ["save", "training", "stripped"])
def test_a_checkpoint_of_the_package_keeps_its_numbers_and_plan(tmp_path, form):
    model = net("yolo11n.yaml")
    told = convert_ultralytics(saved(model, tmp_path / "net.pt", form), tmp_path / "net.safetensors")
    weights, facts = tensors.read_weights(tmp_path / "net.safetensors", "ultralytics")
    state = model.state_dict()
    assert weights.keys() == state.keys()
    assert len(weights) == 499
    for name, tensor in state.items():
        assert torch.equal(weights[name], tensor.half().float() if tensor.is_floating_point() else tensor), name
    assert facts["names"] == NAMES
    assert facts["stride"] == [8.0, 16.0, 32.0]
    assert facts["eps"] == 1e-3
    assert facts["yaml"]["nc"] == 3
    assert facts["yaml"]["scale"] == "n"
    assert (told["names"], told["version"], told["tensors"]) == (NAMES, "8.4.190", 499)


def test_other_nets_are_refused(tmp_path):
    for plan, kind in (("yolo11n-seg.yaml", "SegmentationModel"), ("yolo11n-cls.yaml", "ClassificationModel")):
        YOLO(plan).save(tmp_path / "net.pt")
        with pytest.raises(UserError, match=rf"net\.pt.*it contains ultralytics\.nn\.tasks\.{kind}, not"):
            convert_ultralytics(tmp_path / "net.pt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# the engine


@pytest.mark.parametrize("plan", ["yolo11n.yaml", "yolov8n.yaml", "yolov5n.yaml", "yolov10n.yaml", "yolo26n.yaml"])
@torch.inference_mode()
def test_boxes_are_those_of_the_packages_validation(made, plan):
    """Oracle: the package's net with the package's own suppression, several classes to a box."""
    model, path = made(plan)
    frame = frames(1, SPREAD)[0]
    found = engine(path).detect_batch([frame])[0]
    picture = torch.from_numpy(cv2.resize(frame, (SIDE, SIDE), interpolation=cv2.INTER_AREA)).float()
    halved = copy.deepcopy(model).half().float()
    raw = halved(picture[None, None].expand(1, 3, -1, -1) / 255)[0]
    # in float64, because it tells classes apart by thousands of pixels, which in float32 cost the last digits
    wanted = non_max_suppression(raw.double(), 0.5, 0.5, multi_label=True, max_det=300, nc=3)[0].numpy()
    boxes = np.clip(wanted[:, :4] * 512 / SIDE, 0, 512).round(2)
    keep = (boxes[:, 2:] > boxes[:, :2]).all(1)
    assert keep.sum() >= 5
    assert len(set(wanted[:, 4])) == len(wanted)
    assert len(set(found.class_names)) >= 2
    assert found.confidence.tolist() == wanted[keep, 4].round(6).tolist()
    assert found.boxes.tolist() == boxes[keep].tolist()
    assert found.class_names == [NAMES[int(index)] for index in wanted[keep, 5]]


def test_batches_change_nothing(made):
    _, path = made()
    loaded = engine(path)
    assert loaded.batch == 3
    pictures = frames(4, SPREAD)
    together = alike_in_any_batch(loaded, pictures)
    few = engine(path, max_boxes=2).detect_batch(pictures[:1])[0]
    assert few.boxes.tolist() == together[0].boxes[:2].tolist()


def test_a_net_for_grey_pictures(made):
    model, path = made(channels=1)
    assert model.yaml["channels"] == 1
    assert len(engine(path).detect_batch(frames(1, SPREAD))[0].boxes) > 0


# classes by name


def test_classes_are_renamed_or_left_out(made):
    own = ("opacity", "No finding", "Pleural effusion")
    _, path = made(names=own)
    every = engine(path, {"opacity": "Lung Opacity", "No finding": "ILD"}).detect_batch(frames(1, SPREAD))[0]
    some = engine(path, {"opacity": "Lung Opacity", "No finding": ""}).detect_batch(frames(1, SPREAD))[0]
    assert {"Lung Opacity", "ILD"} <= set(every.class_names)
    assert "ILD" not in some.class_names
    kept = [name != "ILD" for name in every.class_names]
    assert some.boxes.tolist() == every.boxes[kept].tolist()
    assert some.class_names == [name for name in every.class_names if name != "ILD"]


def test_a_class_that_is_none_of_vinbigdata_is_refused(made):
    _, path = made(names=("Lung Opacity", "Cat", "ILD"))
    with pytest.raises(UserError, match="has a class 'Cat', which is not a VinBigData class: map it in boxes"):
        engine(path)
    with pytest.raises(UserError, match="has a class 'Dog', which is not a VinBigData class"):
        engine(path, {"Cat": "Dog"})
    with pytest.raises(UserError, match=r"class_names holds 'Kat', which is no class of .*: choose among Lung Opacity"):
        engine(path, {"Kat": "ILD"})
    with pytest.raises(UserError, match=r"boxes\.ultralytics\.image_size is 100: choose a multiple of 32"):
        engine(path, {"Cat": "ILD"}, size=100)


# files that are none


def evil(mark: str) -> dict:
    """Changes to a plan that would write the file ``mark``."""
    call = f"__import__('pathlib').Path({mark!r}).touch()"
    return {
        "activation": lambda plan: plan.update(activation=call),
        "function": lambda plan: plan["backbone"].insert(0, [-1, 1, "torch_safe_load", [mark]]),
        "argument": lambda plan: plan["backbone"][0].__setitem__(3, [call, 3, 2]),
        "torch": lambda plan: plan["backbone"].insert(0, [-1, 1, "nn.Module.__init__", []]),
    }


@pytest.mark.parametrize("name", list(evil("")))
def test_a_plan_that_names_code_runs_none(made, tmp_path, name):
    weights, facts = tensors.read_weights(made()[1], "ultralytics")
    evil(str(tmp_path / "mark"))[name](facts["yaml"])
    tensors.write_weights(tmp_path / "evil", tensors.tensor_kinds(weights), weights.get, facts)
    with pytest.raises(UserError, match="evil holds a plan of layers that cannot be built") as refused:
        engine(tmp_path / "evil")
    assert not (tmp_path / "mark").exists()
    assert "\n" not in str(refused.value)


FAULTS = {
    "missing": (
        lambda w, f: w.pop("model.0.bn.bias"),
        r"holds weights that do not fit the net \(it lacks model.0",
    ),
    "more": (lambda w, f: w.update(x=torch.zeros(1)), r"holds weights that do not fit the net \(the net has no x"),
    "size": (lambda w, f: f["yaml"].update(scale="s"), "holds weights that do not fit the net"),
    "names": (lambda w, f: f.update(names=["ILD"]), r"cannot be built \(1 class names for 3 classes\)"),
    "channels": (lambda w, f: f["yaml"].update(channels=4), r"cannot be built \(4 input channels, not 1 or 3\)"),
    "no plan": (lambda w, f: f.update(yaml=None), "holds a plan of layers that cannot be built"),
    "eps": (lambda w, f: f.update(eps=None), "has the invalid batch normalisation eps None"),
    "kind": (lambda w, f: f.update(kind="scaled_yolov4"), "holds no weights of ultralytics"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_does_not_fit_is_refused(made, tmp_path, fault):
    change, message = FAULTS[fault]
    weights, facts = tensors.read_weights(made()[1], "ultralytics")
    change(weights, facts)
    tensors.write_weights(tmp_path / "bad", tensors.tensor_kinds(weights), weights.get, facts)
    with pytest.raises(UserError, match=message) as refused:
        engine(tmp_path / "bad")
    sentence = str(refused.value)
    assert sentence.endswith(": delete it and run snakemake weights again (docs/how-to/models.md)")
    assert "\n" not in sentence


# the stage


def test_the_stage_writes_its_table(made, tmp_path):
    _, path = made()
    shard = write_frames(tmp_path / "frames.h5", 3, SPREAD)
    results = []
    for batch in (1, 8):
        outputs = {"output": tmp_path / f"{batch}.parquet", "excluded": tmp_path / f"{batch}.excluded.parquet"}
        settings = options(excluded_classes=["ILD"])
        compute = {"device": "cpu", "batch": batch}
        run_shard(
            frames=shard,
            options=settings,
            attrs={},
            threads=1,
            compute=compute,
            weights=str(path),
            **outputs,
        )
        results.append(outputs["output"].read_bytes())
    assert results[0] == results[1]
    table = read_table(tmp_path / "8.parquet")
    assert dict(table.schema) == SCHEMA
    assert set(table["image_id"]) == {"i0", "i1", "i2"}
    assert set(table["class_name"]) <= set(BOX_CLASSES)
    assert (table["is_used"] == (table["class_name"] != "ILD")).all()
    assert len(read_table(tmp_path / "8.excluded.parquet")) == 0
