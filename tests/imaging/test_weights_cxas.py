"""The published weights of CXAS, converted by their catalogue entry, and one sentence for another file."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conversions import converter
from cxr.base.errors import UserError
from cxr.imaging.weights import catalogue, placed
from cxr.imaging.weights.manifest import WeightsOptions

STATE = {
    "backbone.backbone.layer0.0.weight": torch.full((4, 3, 7, 7), 0.25),
    "head.up1.conv1.conv.1.num_batches_tracked": torch.tensor(7),
    "head.out.conv.bias": torch.arange(159, dtype=torch.float16),
}


def published(path: Path, change: Callable[[dict], object] = lambda held: None, **besides: object) -> Path:
    """Save some tensors as the published checkpoint holds them."""
    held = {f"module.{name}": value for name, value in STATE.items()}
    change(held)
    torch.save({"model": held} | besides, path)
    return path


def test_a_checkpoint_as_published_is_converted(tmp_path):
    extra = {"module.projection.weight": torch.zeros(2)}
    source, target = published(tmp_path / "cxas.pth", lambda held: held.update(extra), epoch=3), tmp_path / "made"
    facts = converter("cxas")(source, target)
    assert facts == {"tensors": 3, "values": 588 + 1 + 159, "left_out": ["projection.weight"]}
    made = load_file(target)
    assert made.keys() == STATE.keys()
    assert torch.equal(made["head.out.conv.bias"], torch.arange(159.0))
    assert made["head.up1.conv1.conv.1.num_batches_tracked"] == 7


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.pop("module.head.out.conv.bias"),
        lambda held: held.update({"module.head.up5.weight": torch.zeros(1)}),
        lambda held: held.update({"module.head.out.conv.bias": torch.zeros(14)}),
    ],
)
def test_another_net_is_refused(tmp_path, change):
    source, target = published(tmp_path / "cxas.pth", change), tmp_path / "cxas.safetensors"
    options = replace(WeightsOptions(**catalogue.rule_params({})["cxas"]), tensors=3, values=588 + 1 + 159)
    with pytest.raises(UserError, match=f"^{re.escape(str(source))} holds .*, so it is another net"):
        placed.run(
            sources=[str(source)], weights=[str(target)], manifest=str(tmp_path / "m.json"), options=options, attrs={}
        )
    assert not target.exists()


def test_a_damaged_file_is_refused(tmp_path):
    source = published(tmp_path / "cxas.pth")
    whole = source.read_bytes()
    # Google Drive's notice of a quota, saved under the name of the file; a download cut short
    for content in (b"<!DOCTYPE html><html><title>Google Drive - Quota exceeded</title></html>", whole[:-500], b"PK"):
        source.write_bytes(content)
        with pytest.raises(
            UserError, match=f"^{re.escape(str(source))} cannot be used: .*: delete it and get it again"
        ):
            converter("cxas")(source, tmp_path / "cxas.safetensors")
