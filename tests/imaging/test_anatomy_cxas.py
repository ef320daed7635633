"""The engine cxas: weights saved as published, compared with the package's own use of them (`make test-cxas`)."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import ROOT
from conversions import converter
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table
from cxr.base.vocabulary import ANATOMY_LABELS, ORGAN_LABELS
from cxr.imaging.anatomy import cxas, segment_anatomy
from cxr.imaging.anatomy.segment_anatomy import load_engine
from cxr.imaging.anatomy.settings import AnatomySettings, CxasSettings
from cxr.imaging.weights.catalogue import rule_params

installed = pytest.mark.skipif(
    importlib.util.find_spec("cxas") is None, reason="cxas is not installed here: `make test-cxas` installs and runs it"
)
OPTIONS = AnatomySettings(engine="cxas")
CHANNELS = (135, 136, 144, 141, 142, 143, 148, 145, 146, 147, 149, 150, 151, 152, 153, 121)
"""Indices of the 16 labels in the package's list of classes, in their order."""
HOOK = """
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""Operators that are missing in a torchvision that was built for another torch (CPU), so that its import fails."""


@pytest.fixture(scope="module", autouse=True)
def _torchvision():
    """Make torchvision importable with a torch that it was not built for; none of its operators is called."""
    if importlib.util.find_spec("torchvision"):
        try:
            import torchvision  # noqa: F401
        except RuntimeError:
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            held = {}
            exec(HOOK, held)
            torch.test_keeps_library = held["library"]  # operators live as long as their library


def pictures(count: int) -> list[np.ndarray]:
    """Smooth random frames, uint8 (512, 512)."""
    rng = np.random.default_rng(5)
    coarse = torch.from_numpy(rng.uniform(0, 255, (count, 1, 12, 12))).float()
    smooth = torch.nn.functional.interpolate(coarse, (512, 512), mode="bicubic").clamp(0, 255)
    return list(smooth[:, 0].round().numpy().astype(np.uint8))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint as published, at the package's path: random weights, each label covers about half a frame."""
    from cxas.label_mapper import id2label_dict
    from cxas.models.UNet.backbone_unet import BackboneUNet

    torch.manual_seed(3)
    net = BackboneUNet(cxas.MODEL, len(id2label_dict)).train()
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0
    with torch.no_grad():
        data = torch.nn.functional.interpolate(cxas.normalised(pictures(2)), 128)
        logits = net({"data": data})["logits"]
        net.head.out.conv.bias -= logits.mean((0, 2, 3))
        net.head.out.conv.weight *= 4 / logits.std()
        net.head.out.conv.bias *= 4 / logits.std()
    home = tmp_path_factory.mktemp("cxas")
    path = home / ".cxas" / "weights" / f"{cxas.MODEL}.pth"
    path.parent.mkdir(parents=True)
    torch.save({"model": {f"module.{name}": value for name, value in net.state_dict().items()}}, path)
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def weights(checkpoint) -> Path:
    path = checkpoint.with_name("cxas.safetensors")
    assert converter("cxas")(checkpoint, path) == {"tensors": 383, "values": 73_441_053}
    yield path
    path.unlink()


def engine(weights: Path, **changes) -> cxas.CxasAnatomy:
    options = replace(OPTIONS, cxas=CxasSettings(**changes))
    return load_engine("cxas", options, Setup.of_job({"weights": str(weights)}, {"device": "cpu", "batch": 8}, "cxas"))


@pytest.fixture(scope="module")
def found(weights) -> list[np.ndarray]:
    """The engine's masks of three frames."""
    return engine(weights).segment_batch(pictures(3))


@installed
def test_the_net_has_the_tensors_that_are_checked():
    net, channels = cxas.published_net()
    counts = [value.numel() for value in net.state_dict().values()]
    expected = rule_params({})["cxas"]
    assert (len(counts), sum(counts)) == (expected["tensors"], expected["values"])
    assert tuple(channels) == CHANNELS


@installed
def test_masks_are_those_of_the_package(checkpoint, found, tmp_path, monkeypatch):
    from PIL import Image

    for name in [name for name in sys.modules if name.partition(".")[0] == "cxas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("CXAS_PATH", str(checkpoint.parents[2]))
    monkeypatch.setenv("CXAS_NO_WELCOME", "1")
    from cxas import CXAS

    whole = CXAS(cxas.MODEL, gpus="cpu")
    for index, (picture, masks) in enumerate(zip(pictures(3), found, strict=True)):
        Image.fromarray(picture).save(tmp_path / f"{index}.png")
        told = whole.process_file(str(tmp_path / f"{index}.png"))["segmentation_preds"][0, list(CHANNELS)].numpy()
        assert masks.shape == (16, 512, 512)
        assert masks.dtype == bool
        assert 0.1 < masks.mean() < 0.9
        # 16 or 159 channels at once: sums may be taken in another order, which moves a pixel on the threshold
        assert (masks != told).mean() < 1e-6


@installed
def test_a_higher_threshold_keeps_what_is_surer(weights, found):
    surer = engine(weights, threshold=0.9).segment_batch(pictures(1))[0]
    assert not (surer & ~found[0]).any()
    assert 0 < surer.sum() < found[0].sum()


@installed
def test_shard(weights, found, tmp_path):
    organs = [ANATOMY_LABELS.index(label) for label in ORGAN_LABELS]
    names = ["x2", "x0", "x1"]
    with ShardWriter(tmp_path / "frames.h5") as frames, ShardWriter(tmp_path / "anomaly.h5") as writer:
        for name, picture in zip(names, pictures(3), strict=True):
            frames.append(name, image=np.zeros_like(picture))
            writer.append(name, anomaly=np.zeros_like(picture), brighter=picture)
    with ShardWriter(tmp_path / "organs.h5", labels=ORGAN_LABELS) as writer:
        for name, masks in zip(names, found, strict=True):
            writer.append(name, mask=masks[organs] & (name != "x0"))
    made = []
    for batch in (1, 3):
        files = {"output": tmp_path / f"{batch}.h5", "excluded": tmp_path / f"{batch}.parquet"}
        segment_anatomy.run_shard(
            frames=tmp_path / "frames.h5", anomaly=tmp_path / "anomaly.h5", organs=tmp_path / "organs.h5",
            weights=str(weights), options=OPTIONS, attrs={"stage": "anatomy"}, threads=1,
            compute={"device": "cpu", "batch": batch}, **files,
        )  # fmt: skip
        made.append([path.read_bytes() for path in files.values()])
    assert made[0] == made[1]
    excluded = read_table(tmp_path / "1.parquet")
    assert excluded.select("image_id", "reason").rows() == [("x0", "organ_disagreement")]
    with Shard(tmp_path / "1.h5") as shard:
        assert shard.labels() == list(ANATOMY_LABELS)
        assert shard.ids == ["x1", "x2"]
        np.testing.assert_array_equal(shard.get("mask", "x2"), found[0])


@installed
def test_weights_that_do_not_fit_are_refused(weights, tmp_path):
    held = load_file(weights)
    held["head.out.conv.weight"] = held["head.out.conv.weight"][:14]
    save_file(held, tmp_path / "other.safetensors")
    for name, told in (
        ("other", r"holds weights that do not fit the net \(the shape differs for head.out.conv.weight\): delete it"),
        ("none", "is missing, damaged or not a safetensors file: delete it and run snakemake weights again"),
    ):
        path = tmp_path / f"{name}.safetensors"
        with pytest.raises(UserError, match=f"^{re.escape(str(path))} {told}"):
            engine(path)
    (tmp_path / "other.safetensors").unlink()


@installed
def test_no_tool_of_the_package_is_loaded():
    # OpenCV with windows needs libGL, which a compute node has not
    code = HOOK if "test_keeps_library" in vars(torch) else ""
    code += "import sys\nfor name in ('cv2', 'SimpleITK', 'pydicom', 'pydicom_seg'):\n    sys.modules[name] = None\n"
    code += "from cxr.imaging.anatomy.cxas import published_net\nassert len(published_net()[1]) == 16"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", check=True)


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^anatomy\.engine 'cxas' needs the environment envs/anatomy-cxas\.yaml"):
        cxas.published_net()


def test_frames_are_normalised_as_images_of_three_colours():
    frames = [np.full((2, 3), 255, np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3)]
    data = cxas.normalised(frames).numpy()
    assert data.shape == (2, 3, 2, 3)
    for colour, (mean, deviation) in enumerate([(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)]):
        expected = (np.stack(frames).astype(np.float64) / 255 - mean) / deviation
        np.testing.assert_allclose(data[:, colour], expected, rtol=1e-5)
