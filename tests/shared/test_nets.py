"""Large nets: the device, and weights that fit or are refused in one sentence."""

import re

import pytest
import torch
from safetensors.torch import save_file

from cxr.base.errors import UserError
from cxr.nets.devices import inference, select_device
from cxr.nets.tensors import load_strict


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))


def test_the_device_is_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [select_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(
        UserError,
        match=r"^compute\.device is 'cuda', but this job sees no GPU on .*compute\.device to cpu",
    ):
        select_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert [select_device(name).type for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]


def test_weights_come_back(tmp_path):
    saved = net().state_dict()
    save_file(saved, tmp_path / "net.safetensors")
    with torch.device("meta"):
        loaded = net()
    load_strict(loaded, tmp_path / "net.safetensors")
    assert saved.keys() == loaded.state_dict().keys()
    assert all(torch.equal(value, saved[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda held: held.pop("1.weight"), "it lacks 1.weight"),
        (lambda held: [held.pop(name) for name in ("1.weight", "0.bias")], "it lacks 0.bias and 1 more of 7"),
        (lambda held: held.update(extra=torch.zeros(1)), "the net has no extra"),
        (lambda held: held.update({"0.bias": torch.zeros(3)}), "the shape differs for 0.bias"),
    ],
)
def test_weights_of_another_net_are_refused(tmp_path, change, told):
    held = net().state_dict()
    change(held)
    path = tmp_path / "net.safetensors"
    save_file(held, path)
    message = f"{path} holds weights that do not fit the net ({told}): delete it and run snakemake weights again"
    with pytest.raises(UserError, match=re.escape(message)):
        load_strict(net(), path)


def test_damaged_weights_are_refused(tmp_path):
    save_file(net().state_dict(), tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    path = tmp_path / "net.safetensors"
    for content in (None, b"", b"<!DOCTYPE html><html>Quota exceeded</html>", whole[:-1], whole[:40]):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{re.escape(str(path))} is missing, damaged or not a safetensors file: "):
            load_strict(net(), path)


def test_nets_run_in_full_precision_without_gradients():
    before = torch.backends.cudnn.allow_tf32
    with inference():
        assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.deterministic
        assert not net()(torch.zeros(1, 1, 4, 4)).requires_grad
    assert torch.backends.cudnn.allow_tf32 == before
