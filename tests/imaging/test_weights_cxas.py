"""The published weights of CXAS: every tensor by name and shape, and one sentence for another file."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from cxr.base.errors import UserError
from cxr.imaging.weights.cxas import convert_cxas, shapes


def published(path: Path, change: Callable[[dict], object] = lambda held: None, **besides: object) -> Path:
    """Save a checkpoint as published, in little room: all values of a tensor are one number."""
    held = {
        f"module.{name}": torch.tensor(7 if name.endswith("tracked") else 0.25).expand(shape)
        for name, shape in shapes().items()
    }
    change(held)
    torch.save({"model": held} | besides, path)
    return path


def test_the_net_is_as_large_as_the_published_one():
    found = shapes()
    assert len(found) == 383
    assert sum(math.prod(shape) for shape in found.values()) == 73_441_053
    assert found["backbone.backbone.layer0.0.weight"] == (64, 3, 7, 7)
    assert found["backbone.backbone.layer3.5.conv2.weight"] == (256, 256, 3, 3)
    assert found["backbone.backbone.layer4.0.downsample.0.weight"] == (2048, 1024, 1, 1)
    assert found["head.up4.conv.double_conv.3.bias"] == (128,)
    assert found["head.out.conv.weight"] == (159, 128, 1, 1)


def test_a_checkpoint_as_published_is_converted(tmp_path):
    def change(held):
        held["module.head.out.conv.bias"] = torch.arange(159, dtype=torch.float16)
        held["module.projection.weight"] = torch.zeros(2)

    source, target = published(tmp_path / "cxas.pth", change, epoch=3), tmp_path / "cxas.safetensors"
    facts = convert_cxas(source, target)
    assert facts == {"tensors": 383, "values": 73_441_053, "left_out": ["projection.weight"]}
    with safe_open(target, "pt") as file:
        assert {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()} == shapes()  # noqa: SIM118
        assert torch.equal(file.get_tensor("head.out.conv.bias"), torch.arange(159.0))
        assert torch.equal(file.get_tensor("head.up1.conv1.conv.0.bias"), torch.full((1024,), 0.25))
        assert file.get_tensor("head.up1.conv1.conv.1.num_batches_tracked") == 7
    target.unlink()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda held: [held.pop(f"module.head.out.conv.{kind}") for kind in ("weight", "bias")],
            "it lacks head.out.conv.bias and 1 more of 383",
        ),
        (lambda held: held.update({"module.head.up5.weight": torch.zeros(1)}), "the net has no head.up5.weight"),
        (
            lambda held: held.update({"module.head.out.conv.bias": torch.zeros(14)}),
            "the shape differs of head.out.conv.bias",
        ),
    ],
)
def test_another_net_is_refused(tmp_path, change, told):
    source = published(tmp_path / "cxas.pth", change)
    said = f"{source} is not UNet_ResNet50_default.pth of CXAS, for {told}: download that (docs/how-to/models.md)"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        convert_cxas(source, tmp_path / "cxas.safetensors")
    assert not (tmp_path / "cxas.safetensors").exists()


def test_a_damaged_file_is_refused(tmp_path):
    source = published(tmp_path / "cxas.pth")
    whole = source.read_bytes()
    # Google Drive's notice of a quota, saved under the name of the file; a download cut short
    for content in (b"<!DOCTYPE html><html><title>Google Drive - Quota exceeded</title></html>", whole[:-500], b"PK"):
        source.write_bytes(content)
        with pytest.raises(
            UserError, match=f"^{re.escape(str(source))} cannot be used: .*: delete it and get it again"
        ):
            convert_cxas(source, tmp_path / "cxas.safetensors")
