"""Checkpoints of whole modules are read without running their code, with the same numbers as in torch."""

import io
import os
import pickle
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from cxr.base.errors import UserError
from cxr.imaging.weights import pickles
from cxr.imaging.weights.pickles import Stub
from cxr.imaging.weights.yolo import to_json_value


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.bn = nn.BatchNorm2d(3, eps=1e-3)
        self.register_buffer("grid", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.twin = self.conv.weight
        self.gone = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(Inner(), nn.Linear(4, 1, bias=False))
        self.names = ["a", "b"]
        self.yaml = {"nc": 2, "anchors": ((1, 2.5), None, True)}
        self.stride = torch.tensor([8.0, 16.0])
        self.forward = self.other  # a bound method among the attributes, as fused nets have

    def other(self, x):
        return x


SOURCE = Path("net.pt")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Return a function that saves the net as if its classes were of a missing package, and reads it back."""
    package = types.ModuleType("far.away")
    for cls in (Inner, Net):
        monkeypatch.setattr(cls, "__module__", "far.away")
        setattr(package, cls.__name__, cls)

    def save(dtype=torch.float32, archive=True):
        net = Net().to(dtype)
        with monkeypatch.context() as there:
            there.setitem(sys.modules, "far", types.ModuleType("far"))
            there.setitem(sys.modules, "far.away", package)
            torch.save({"model": net, "epoch": 3}, tmp_path / "net.pt", _use_new_zipfile_serialization=archive)
        return net, pickles.read_checkpoint(tmp_path / "net.pt")

    return save


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "stream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_whole_module_gives_its_state_dict(saved, dtype, archive):
    net, read = saved(dtype, archive)
    assert "far" not in sys.modules
    found, expected = pickles.read_state(SOURCE, pickles.find_network(SOURCE, read)), net.state_dict()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert read["epoch"] == 3


def test_attributes_and_classes_are_kept(saved):
    _, read = saved()
    network = pickles.find_network(SOURCE, read)
    assert network.kind == "far.away.Net"
    assert to_json_value(network.state["names"]) == ["a", "b"]
    assert to_json_value(network.state["yaml"]) == {"nc": 2, "anchors": [[1, 2.5], None, True]}
    assert network.state["stride"].tolist() == [8.0, 16.0]
    inner = dict(pickles.named_modules(network))
    assert [(path, module.name) for path, module in inner.items()] == [
        ("", "Net"),
        ("model", "Sequential"),
        ("model.0", "Inner"),
        ("model.0.conv", "Conv2d"),
        ("model.0.bn", "BatchNorm2d"),
        ("model.1", "Linear"),
    ]
    assert inner["model.0.bn"].state["eps"] == 1e-3
    with pytest.raises(ValueError, match="it holds Tensor where a plain value belongs"):
        to_json_value(network.state["stride"])


class Attack:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def container(tmp_path, content: bytes):
    """An archive as torch.save writes it, with this pickle."""
    path = tmp_path / "attack.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", content)
        archive.writestr("net/version", "3\n")
    return path


def attacks(mark: str) -> dict[str, bytes]:
    """Pickles that would write the file ``mark`` if they were loaded."""
    write = f"open({mark!r}, 'w').close()"
    return {
        "os.system": pickle.dumps(Attack(os.system, f"touch {mark}")),
        "eval": pickle.dumps(Attack(eval, write)),
        "exec": pickle.dumps(Attack(exec, write), protocol=4),
        "open": pickle.dumps(Attack(open, mark, "w")),
        "inside a checkpoint": pickle.dumps({"epoch": 1, "model": [Attack(os.system, f"touch {mark}")]}),
        "old protocol": b"cos\nsystem\n(Vtouch " + mark.encode() + b"\ntR.",
        "global by name": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x05touch\x85R.",
        "subprocess": b"csubprocess\nPopen\n((lVtouch\naV" + mark.encode() + b"\natR.",
        "dotted name": b"\x80\x04\x8c\x08builtins\x8c\x0dstr.__class__\x93.",
        "importlib": b"cimportlib\nimport_module\n(Vantigravity\ntR.",
        "runpy": b"crunpy\n_run_code\n(V" + write.encode() + b"\n}tR.",
    }


@pytest.mark.parametrize("name", list(attacks("")))
def test_an_attack_does_nothing_and_is_refused(tmp_path, name):
    mark = tmp_path / "mark"
    path = container(tmp_path, attacks(str(mark))[name])
    with pytest.raises(UserError, match="cannot be used: it is not a complete PyTorch checkpoint") as refused:
        pickles.read_checkpoint(path)
    assert not mark.exists()
    assert "which no network needs but an attack may use" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_attacks_are_real(tmp_path):
    done = 0
    for content in list(attacks(str(tmp_path / "mark")).values())[:6]:
        pickle.load(io.BytesIO(content))
        done += (tmp_path / "mark").exists()
        (tmp_path / "mark").unlink()
    assert done == 6


def test_what_is_called_of_other_packages_does_nothing(tmp_path):
    """torch.load within a pickle would read a second, unchecked one."""
    mark = tmp_path / "mark"
    inner = container(tmp_path, pickle.dumps(Attack(os.system, f"touch {mark}")))
    path = tmp_path / "outer.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", b"ctorch.serialization\nload\n(V" + str(inner).encode() + b"\nNNI00\ntR.")
        archive.writestr("net/version", "3\n")
    read = pickles.read_checkpoint(path)
    assert read.kind == "torch.serialization.load"
    with pytest.raises(UserError, match=r"outer\.pt cannot be used: it holds no network: delete it"):
        pickles.find_network(path, read)
    assert not mark.exists()


def test_tensors_cannot_reach_out_of_their_storage():
    storage = torch.storage.TypedStorage(wrap_storage=torch.arange(6.0).untyped_storage(), dtype=torch.float32)
    rebuild = pickles.NAMES["torch._utils", "_rebuild_tensor"]
    for shape, stride, offset in (
        ((7,), (1,), 0),
        ((6,), (1,), 1),
        ((2, 3), (6, 1), 0),
        ((6,), (-1,), 0),
        ((9**9,), (0,), 0),
    ):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            rebuild(storage, offset, shape, stride)
    assert rebuild(storage, 1, (2, 2), (2, 1)).tolist() == [[1, 2], [3, 4]]


def test_damaged_files_are_refused_with_one_sentence(saved, tmp_path):
    saved()
    whole = (tmp_path / "net.pt").read_bytes()
    bad = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "page": b"<!DOCTYPE html><html>quota exceeded</html>",
        "zip": None,
        "noise": bytes(range(256)) * 8,
    }
    for name, content in bad.items():
        path = tmp_path / f"{name}.pt"
        if content is None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("readme.txt", "hello")
        else:
            path.write_bytes(content)
        with pytest.raises(
            UserError, match=rf"{name}\.pt cannot be used: it is not a complete PyTorch checkpoint"
        ) as refused:
            pickles.read_checkpoint(path)
        assert str(refused.value).endswith("delete it and get it again (docs/how-to/models.md)")
        assert "\n" not in str(refused.value)
    damaged = bytearray(whole)
    damaged[whole.index(b"data/0") + 80] ^= 255  # a number, which only its checksum guards
    (tmp_path / "net.pt").write_bytes(damaged)
    with pytest.raises(
        UserError, match=r"net\.pt cannot be used: it is not a complete PyTorch checkpoint \(Bad CRC-32"
    ):
        pickles.read_checkpoint(tmp_path / "net.pt")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compressed_archive_or_a_program_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(nn.ReLU()), tmp_path / "program.pt")
    with pytest.raises(UserError, match=r"cannot be used: it"):
        pickles.read_checkpoint(tmp_path / "program.pt")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}))
    with pytest.raises(UserError, match="its archive is compressed, which PyTorch never does: delete it"):
        pickles.read_checkpoint(tmp_path / "zip.pt")


def test_modules_that_hold_one_another_end():
    network = Stub()
    network.state["_modules"] = {"again": network}
    with pytest.raises(UserError, match="one of its modules contains itself"):
        pickles.read_state(SOURCE, network)
