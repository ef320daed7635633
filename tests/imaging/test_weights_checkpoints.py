"""Checkpoints that hold more than a net, with other names or in other files, are read in little memory."""

import argparse
import collections
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch import nn

from conftest import ROOT
from conversions import converter
from cxr.base.errors import UserError
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.imaging.weights import state_dict
from cxr.nets import tensors

STATES = {
    "sam": {
        "image_encoder.pos_embed": torch.arange(6.0).reshape(2, 3),
        "prompt_encoder.no_mask_embed.weight": torch.tensor([[1.5]]),
        "mask_decoder.iou_token.weight": torch.ones(2, 2, dtype=torch.float16),
    },
    "hybridgnet": {
        "encoder.fc_mu.weight": torch.arange(4.0),
        "dec_lin.bias": torch.ones(2),
        "graphConv_up6.lins.0.weight": torch.eye(2),
        "SC_1.graphConv_pre.lins.0.weight": torch.zeros(1, 2),
    },
    "cxas": {
        "backbone.layer0.0.weight": torch.full((2, 3, 7, 7), 0.25, dtype=torch.float16),
        "backbone.layer0.1.num_batches_tracked": torch.tensor(7),
        "head.out.conv.bias": torch.arange(159.0),
    },
}
"""A few tensors for each of three artefacts."""
EACH = pytest.mark.parametrize("artefact", STATES)


class Scheduler:
    """An object that a training may store, whose class is missing when the file is read."""

    def __init__(self):
        self.values, self.log = np.arange(3), logging.getLogger("training")


def besides() -> dict:
    """What trainings put beside the weights."""
    optimiser = torch.optim.AdamW([nn.Parameter(torch.ones(3))])
    optimiser.step()
    return {
        "optimizer": optimiser.state_dict(), "epoch": 3, "loss": np.float64(0.5), "args": argparse.Namespace(lr=1e-4),
        "out": Path("runs/one"), "names": re.compile("conv.*"), "counts": collections.Counter("aab"),
        "scheduler": Scheduler(), "rng": torch.get_rng_state(), "complex": torch.ones(2, dtype=torch.complex64),
        "defaults": collections.defaultdict(list, a=[1]), "kind": torch.float16, "device": torch.device("cpu"),
    }  # fmt: skip


def check(artefact: str, source: Path) -> dict:
    """Convert a file, and check that every tensor equals the saved one, to the bit."""
    target = source.with_suffix(".made")
    facts = converter(artefact)(source, target)
    made = load_file(target)
    assert made.keys() == STATES[artefact].keys()
    for name, value in list(STATES[artefact].items())[:40]:
        wanted = value.float() if artefact == "cxas" and value.is_floating_point() else value
        assert made[name].dtype == wanted.dtype
        assert torch.equal(made[name], wanted), name
    target.unlink()
    return facts


@EACH
@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "network", "net"])
def test_a_checkpoint_with_more_than_tensors_beside_the_net(artefact, key, tmp_path):
    torch.save({key: dict(STATES[artefact])} | besides(), tmp_path / "net.pt")
    check(artefact, tmp_path / "net.pt")


def test_torch_itself_refuses_such_a_file(tmp_path):
    """Otherwise the tests above would prove nothing."""
    torch.save({"model": {}} | besides(), tmp_path / "net.pt")
    with pytest.raises(Exception, match="weights_only"):
        torch.load(tmp_path / "net.pt", weights_only=True)


@EACH
@pytest.mark.parametrize("prefix", ["module.", "model.", "net.", "module.model.", "_orig_mod.", "model.module."])
def test_what_training_code_put_before_the_names_is_taken_away(artefact, prefix, tmp_path):
    named = {prefix + name: value for name, value in STATES[artefact].items()}
    torch.save(
        {"state_dict": named | {"loss_fn.weight": torch.ones(2), "ema.step": torch.ones(1)}}, tmp_path / "net.pt"
    )
    facts = check(artefact, tmp_path / "net.pt")
    assert facts["left_out"] == ["ema.step", "loss_fn.weight"]


@EACH
def test_a_tensor_with_two_prefixes_is_one_sentence(artefact, tmp_path):
    name, value = next(iter(STATES[artefact].items()))
    torch.save(STATES[artefact] | {f"model.{name}": value}, tmp_path / "net.pt")
    with pytest.raises(UserError, match=rf"the tensor {re.escape(name)} with and without a prefix: download"):
        converter(artefact)(tmp_path / "net.pt", tmp_path / "made")


@EACH
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
@pytest.mark.parametrize("wrap", [lambda net: net, nn.DataParallel, lambda net: {"model": net, "epoch": 3}])
@pytest.mark.parametrize("archive", [True, False])
def test_a_whole_net_gives_its_state_dict(artefact, wrap, archive, tmp_path):
    net = nn.Module()
    for name, value in STATES[artefact].items():
        *path, last = name.split(".")
        inner = net
        for part in path:
            if not hasattr(inner, part):
                inner.add_module(part, nn.Module())
            inner = getattr(inner, part)
        inner.register_buffer(last, value)
    torch.save(wrap(net), tmp_path / "net.pt", _use_new_zipfile_serialization=archive)
    check(artefact, tmp_path / "net.pt")


@EACH
@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
def test_safetensors_under_whatever_name(artefact, name, tmp_path):
    save_file({key: value.contiguous() for key, value in STATES[artefact].items()}, tmp_path / name)
    check(artefact, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for content in (whole[:-1], whole[:100], whole[:8] + b"{"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be used: it is not a complete safetensors file") as told:
            converter(artefact)(tmp_path / name, tmp_path / "made")
        assert "\n" not in str(told.value)


def test_views_of_one_storage_and_types_without_a_storage_of_their_own(tmp_path):
    """Flattened trainings save all tensors as views of one; newer types have storages of bytes."""
    flat = torch.arange(12.0)
    held = {"a": flat[:6].view(2, 3).t(), "b": flat[6:], "c": flat[2:3].expand(4), "d": torch.tensor(True)}
    torch.save(held | {"u": torch.arange(3, dtype=torch.int16)}, tmp_path / "net.pt")
    state_dict.convert_state_dict(tmp_path / "net.pt", tmp_path / "made")
    made = load_file(tmp_path / "made")
    for name, value in held.items():
        assert torch.equal(made[name], value)


def test_the_stream_is_what_the_library_writes(tmp_path):
    random = torch.Generator().manual_seed(0)
    given = {f"b.{n}": torch.randn(n, 3, generator=random) for n in range(4)}
    given |= {'é"': torch.tensor(2.5), "ä": torch.randn(3, 2, generator=random).t().contiguous()}
    for metadata in (None, {"facts": '{"é": 1}'}):
        tensors.stream_tensors(tmp_path / "net", tensors.tensor_kinds(given), given.get, metadata)
        assert (tmp_path / "net").read_bytes() == save(given, metadata)
    for dtype in tensors.DTYPE_CODES:
        mixed = given | {"m": torch.tensor([0, 1, 3]).to(dtype), "n": torch.tensor([1], dtype=torch.uint8)}
        tensors.stream_tensors(tmp_path / "net", tensors.tensor_kinds(mixed), mixed.get, None)
        found = load_file(tmp_path / "net")
        assert found.keys() == mixed.keys()
        assert all(
            found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in mixed.items()
        )
    with pytest.raises(ValueError, match=r"a has the shape \(2,\), not \(3,\)"):
        tensors.stream_tensors(tmp_path / "net", {"a": ((3,), torch.float32)}, lambda name: torch.ones(2))


PEAK = """
import re, sys, threading
from pathlib import Path
{imports}
def status(field):
    return 1024 * int(re.search(field + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
def peak():  # getrusage would begin with that of the process which started this one
    return status("VmHWM")
def watch():  # without the pages of mapped files, which the system takes back when it needs them
    while not done.wait(0.002):
        highest.append(status("RssAnon"))
torch.ones(1).float()
done, highest = threading.Event(), [status("RssAnon")]
before = peak()
{code}
done.set()
print(max(highest) - highest[0] if len(highest) > 1 else peak() - before)
"""
MB = 2**20


def most_memory(imports: str, code: str, *arguments: Path) -> int:
    """Return the largest growth of resident memory in a separate process, bytes."""
    program = PEAK.format(imports="import torch\n" + imports, code=code)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT / "scripts"), "PATH": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return int(done.stdout)


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """A shard of 300 MB like LISA's, with tensors of 15 MB."""
    path = tmp_path_factory.mktemp("large") / "pytorch_model-00001-of-00002.bin"
    torch.save({f"model.layers.{n}.mlp.up_proj.weight": torch.full((7 * MB + n,), n / 8, dtype=torch.bfloat16)
                for n in range(20)}, path)  # fmt: skip
    return path


@pytest.mark.slow
def test_a_conversion_holds_no_file_in_memory(large, tmp_path):
    target = tmp_path / "model.safetensors"
    imports = "from cxr.imaging.weights.state_dict import convert_state_dict"
    code = "threading.Thread(target=watch).start()\n"
    code += "convert_state_dict(Path(sys.argv[1]), Path(sys.argv[2]), ('model',))"
    grown = most_memory(imports, code, large, target)
    print(f"converting {large.stat().st_size / MB:.0f} MB took {grown / MB:.0f} MB")
    assert grown < 0.5 * large.stat().st_size
    assert abs(target.stat().st_size - large.stat().st_size) < MB
    made = load_file(target)
    assert all(float(value[-1]) == int(name.split(".")[2]) / 8 for name, value in made.items())


@pytest.mark.slow
def test_a_model_goes_to_its_device_without_the_computers_memory(tmp_path):
    """Eight processes that each loaded it first took 123 GB. The device ``meta`` stands for a GPU with other memory."""
    sizes = SimpleNamespace(image=64, patch=8, width=32, depth=1, clip_image=32, clip_patch=16, hidden=1024, layers=4)
    tokens = Tokens.prepare(make_word_tokenizer(["Segment the edema."]))
    model = make_lite(sizes, tokens, 1)
    model.save_pretrained(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    assert size > 300 * MB
    imports = "from cxr.ils.rosalia.model import Rosalia"
    grown = {
        device: most_memory(imports, f"Rosalia.from_pretrained(sys.argv[1], torch.float32, {device!r})", tmp_path)
        for device in ("cpu", "meta")
    }
    print({device: f"{value / MB:.0f} of {size / MB:.0f} MB" for device, value in grown.items()})
    assert grown["cpu"] > size
    assert grown["meta"] < 0.2 * size
    found, wanted = Rosalia.from_pretrained(tmp_path), model.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in found.state_dict().items())
    for name, value in model.named_buffers():
        assert torch.equal(dict(found.named_buffers())[name], value), name
