"""How large nets are made faster: compiling that falls back, memory layout, cuDNN's choice, number types, batches."""

import logging

import numpy as np
import pytest
import torch

import tiny_diffusion as tiny
from cxr.base.engines import Setup
from cxr.base.faults import Broken
from cxr.imaging.anomaly.radedit import load
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.nets.settings import ComputeSettings
from cxr.nets.speed import CompiledNet, Speed, fast_inference, optimize_net

FASTEST = Speed(channels_last=True, cudnn="fastest")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    return tiny.write_radedit(tmp_path_factory.mktemp("radedit"))


def edited(files: dict[str, str], changes: dict | None = None, **compute) -> np.ndarray:
    """Edited images of a tiny RadEdit, float32 (2, 64, 64)."""
    settings = {"steps": 4, "dtype": "float32"} | (changes or {})
    options = AnomalySettings.from_dict({"engine": "radedit", "radedit": settings})
    random = np.random.default_rng(3)
    images = [random.integers(0, 256, (64, 64)).astype(np.uint8) for _ in range(2)]
    lung = np.zeros((64, 64), bool)
    lung[16:48, 8:24] = True
    organs = [{"right lung": lung, "left lung": lung[:, ::-1].copy(), "heart": np.zeros_like(lung)}] * 2
    setup = Setup.of_job(files, ComputeSettings(**compute).as_dict() | {"device": "cpu"}, "radedit", seed=7)
    return np.stack(load(options, setup).edit_batch(images, organs, ["a", "b"]))


def test_a_net_that_cannot_be_compiled_runs_as_it_is_and_says_so_once(monkeypatch, caplog):
    def compiled(net, **_):
        def call(*_, **__):
            raise ImportError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    net = optimize_net(torch.nn.Linear(2, 3), Speed(compiled=True), "the U-Net")
    assert isinstance(net, CompiledNet)
    with caplog.at_level(logging.WARNING, "cxr"):
        first, second = net(torch.ones(1, 2)), net(torch.ones(1, 2))
    assert torch.equal(first, second)
    assert caplog.messages == ["the U-Net cannot be compiled and runs uncompiled: ImportError: no compiler here"]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), Broken("the card is gone")])
def test_a_lack_of_memory_and_a_broken_device_are_no_failure_of_the_compiler(monkeypatch, error):
    """Else a batch that is too large would never be halved."""

    def call(*_, **__):
        raise error

    monkeypatch.setattr(torch, "compile", lambda net, **_: call)
    net = optimize_net(torch.nn.Linear(2, 3), Speed(compiled=True), "the U-Net")
    with pytest.raises(type(error)):
        net(torch.ones(1, 2))


def test_an_error_of_the_net_itself_is_raised(monkeypatch):
    """Falling back must hide no wrong input."""
    monkeypatch.setattr(torch, "compile", lambda net, **_: net)
    net = optimize_net(torch.nn.Linear(2, 3), Speed(compiled=True), "the U-Net")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net(torch.ones(1, 5))


def test_the_algorithms_are_those_asked_for_and_come_back_afterwards():
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    with fast_inference(Speed()):
        assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, True)
        assert not torch.backends.cudnn.allow_tf32
    with fast_inference(FASTEST, tf32=True):
        assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
        assert torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
        with fast_inference(FASTEST):
            assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.is_inference_mode_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32) == before


def test_the_memory_layout_changes_an_edit_by_rounding_alone(files):
    plain, other = edited(files), edited(files, channels_last=True, cudnn="fastest")
    np.testing.assert_allclose(other, plain, atol=0.01)
    assert plain.std() > 10


def test_the_autoencoders_number_type(files):
    """TF32 is a GPU's; bfloat16 moves the tiny autoencoder's picture by grey levels, and never to another one."""
    plain, tf32, half = (edited(files, {"autoencoder": name}) for name in ("float32", "tf32", "bfloat16"))
    assert tf32.tobytes() == plain.tobytes()
    moved = np.abs(half - plain)
    assert 0 < moved.mean() < 4
    assert np.corrcoef(half.ravel(), plain.ravel())[0, 1] > 0.99


def test_an_engine_has_its_own_batch():
    compute = ComputeSettings(batch=4, batches={"radedit": 2}).as_dict()
    assert Setup.of_job({}, compute, "radedit").batch == 2
    assert Setup.of_job({}, compute, "cxas").batch == Setup.of_job({}, compute).batch == 4


@pytest.mark.slow
def test_a_compiled_net_edits_the_same(files):
    np.testing.assert_allclose(edited(files, compile=True), edited(files), atol=0.05)
