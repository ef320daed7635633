"""The classifier xrv: its net is the published one, so are its scores; its file is read without running it."""

import os
import pickle
import sys
import types
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from conftest import ROOT
from conversions import converter
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.vocabulary import FINDINGS
from cxr.nets.densenet import DenseNet121, normalise_scores, prepare_frame
from cxr.semisyn.healthy import xrv
from healthy_shard import Film, options, select


@pytest.fixture(scope="module")
def published():
    """The module of the wheel that holds the published class; what it imports besides torch stands empty."""
    named = os.environ.get("CXR_ILS_XRV")
    wheels = [Path(named)] if named else sorted((ROOT / "openi" / ".package").glob("torchxrayvision-*.whl"))
    if not wheels:
        pytest.skip("no wheel of torchxrayvision: CXR_ILS_XRV names it (pip download --no-deps torchxrayvision==1.5.7)")
    with zipfile.ZipFile(wheels[0]) as package:
        text = package.read("torchxrayvision/models.py").decode()
    package = types.ModuleType("torchxrayvision")
    package.datasets, package.utils = types.ModuleType("datasets"), types.ModuleType("utils")
    package.datasets.default_pathologies = list(range(18))
    before = {name: sys.modules.get(name) for name in ("torchvision", "requests", "torchxrayvision")}
    sys.modules |= {name: types.ModuleType(name) for name in before if before[name] is None} | {
        "torchxrayvision": package
    }
    held = types.ModuleType("torchxrayvision.models")
    held.__package__ = "torchxrayvision"
    sys.modules["torchxrayvision.models"] = held
    try:
        exec(compile(text, "models.py", "exec"), held.__dict__)
        yield held
    finally:
        sys.modules.pop("torchxrayvision.models")
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def randomised(net: torch.nn.Module) -> torch.nn.Module:
    """Give a net weights and statistics that let every layer matter."""
    generator = torch.Generator().manual_seed(5)
    for name, value in net.state_dict().items():
        if name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        elif name.endswith(("running_mean", "bias")):
            value.copy_(torch.randn(value.shape, generator=generator) / 10)
        elif "norm" in name and name.endswith("weight"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return net.eval()


def test_the_net_and_its_scores_are_the_published_ones(published, tmp_path):
    theirs = randomised(published.DenseNet())
    torch.save(theirs, tmp_path / "xrv.pt")  # the class is pickled by its name, as published
    assert b"torchxrayvision.models" in (tmp_path / "xrv.pt").read_bytes()
    converter("xrv")(tmp_path / "xrv.pt", tmp_path / "xrv.safetensors")
    classifier = xrv.load(options(), Setup({}, {"weights": str(tmp_path / "xrv.safetensors")}))
    outputs = published.model_urls["all"]
    assert classifier.points.tolist() == pytest.approx(outputs["op_threshs"])
    rng = np.random.default_rng(1)
    for _ in range(3):
        frame = cv2.resize(rng.integers(0, 256, (40, 40)).astype(np.uint8), (512, 512))
        given = prepare_frame(frame)
        with torch.inference_mode():
            logits = theirs(given)
            assert torch.allclose(classifier.net(given), logits, atol=1e-5)
            wanted = published.op_norm(torch.sigmoid(logits), torch.tensor(outputs["op_threshs"]))[0]
        found = classifier.scores("i", lambda frame=frame: frame)
        names = dict(zip(FINDINGS, ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Lung Opacity", "Effusion",
                                    "Pneumothorax"), strict=True))  # fmt: skip
        for finding, name in names.items():
            assert found[finding] == pytest.approx(float(wanted[outputs["labels"].index(name)]), abs=1e-5)


def test_an_operating_point_becomes_a_half():
    points = torch.tensor([0.2, 0.2, 0.2, 0.01, 0.2])
    scores = torch.tensor([0.2, 0.1, 0.6, 0.01, 0.0])
    assert normalise_scores(scores, points).tolist() == pytest.approx([0.5, 0.25, 0.75, 0.5, 0.0])


def test_grey_levels_become_the_nets_range():
    given = prepare_frame(np.full((512, 512), 255, np.uint8))
    assert given.shape == (1, 1, 224, 224)
    assert given.unique().tolist() == [1024.0]
    assert prepare_frame(np.zeros((512, 512), np.uint8)).unique().tolist() == [-1024.0]


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def test_a_pickle_is_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"features.conv0.weight": torch.zeros(1), "more": Harmful()}, tmp_path / "xrv.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Harmful()))
    for name in ("xrv.pt", "plain.pt"):
        with pytest.raises(UserError):
            converter("xrv")(tmp_path / name, tmp_path / "xrv.safetensors")
        assert not (tmp_path / "harmed").exists()


def test_another_net_is_refused(tmp_path):
    torch.save(DenseNet121(14).state_dict(), tmp_path / "xrv.pt")
    converter("xrv")(tmp_path / "xrv.pt", tmp_path / "xrv.safetensors")
    with pytest.raises(UserError, match=r"weights that do not fit the net \(the shape differs for classifier\.bias"):
        xrv.load(options(), Setup({}, {"weights": str(tmp_path / "xrv.safetensors")}))


def test_the_screen_of_a_net(tmp_path):
    """A net that calls everything an effusion: its bias alone speaks."""
    net = randomised(DenseNet121(18))
    net.classifier.weight.data.zero_()
    net.classifier.bias.data.fill_(-9.0)
    net.classifier.bias.data[7] = 2.0
    torch.save(net.state_dict(), tmp_path / "xrv.pt")
    converter("xrv")(tmp_path / "xrv.pt", tmp_path / "xrv.safetensors")
    weights = str(tmp_path / "xrv.safetensors")
    gone, _ = select(tmp_path, [Film("i")], options(classifier="xrv"), weights=weights)
    assert gone["i"][0] == "classifier_positive"
    assert gone["i"][1].startswith("effusion 0.9")
    net.classifier.bias.data[7] = -9.0
    torch.save(net.state_dict(), tmp_path / "xrv.pt")
    converter("xrv")(tmp_path / "xrv.pt", tmp_path / "xrv.safetensors")
    gone, kept = select(tmp_path, [Film("i")], options(classifier="xrv"), weights=weights)
    assert not gone
    assert 0 < kept["score_pneumothorax"][0] < 0.5
