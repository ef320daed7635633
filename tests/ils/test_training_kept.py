"""Outputs of frozen encoders on disk: the same training as without, each image encoded once, and no room in vain."""

import logging
import shutil
from types import SimpleNamespace

import pytest
import torch

from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.ils.rosalia.model import Rosalia
from cxr.segmentation import encoder_cache
from training_runs import NAMED, data, options, run_until, train, updates

LOSSES = ("loss", "text", "bce", "dice")


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("pairs"))


@pytest.fixture
def encoded(monkeypatch) -> dict[str, list[int]]:
    """The numbers of images that each encoder was given, call by call."""
    seen: dict[str, list[int]] = {"_encode_patches": [], "_encode_for_sam": []}
    for name, calls in seen.items():
        whole = getattr(Rosalia, name)

        def counted(self, pixels, whole=whole, calls=calls):
            calls.append(len(pixels))
            return whole(self, pixels)

        monkeypatch.setattr(Rosalia, name, counted)
    return seen


def alike(first, second) -> None:
    for name in LOSSES:
        assert updates(first)[name].to_list() == pytest.approx(updates(second)[name].to_list(), abs=1e-6)
    columns = ["epoch", "giou", "ciou", "n_acc"]
    assert read_table(first / "epochs.tsv")[columns].equals(read_table(second / "epochs.tsv")[columns])


def test_the_losses_are_those_of_a_training_that_keeps_nothing(tmp_path, given, encoded, caplog):
    plain = train(tmp_path / "plain", given)
    without = {name: sum(calls) for name, calls in encoded.items()}
    for calls in encoded.values():
        calls.clear()
    with caplog.at_level(logging.INFO, "cxr"):
        alike(train(tmp_path / "kept", given, keep_features=True), plain)
    (told,) = [record.getMessage() for record in caplog.records if "keep_features" in record.getMessage()]
    views = int(told.split(" for ")[1].split(" views")[0])
    for name, calls in encoded.items():
        assert 0 < sum(calls) <= views < without[name]
    assert "compute.keep_features: the outputs of the frozen vision_tower and vision_encoder for" in told
    assert not (tmp_path / "kept/checkpoint").exists()


def test_a_training_that_was_cut_off_finds_what_it_kept(tmp_path, given, encoded, monkeypatch):
    whole = train(tmp_path / "whole", given, keep_features=True)
    calls = {name: sum(found) for name, found in encoded.items()}
    for found in encoded.values():
        found.clear()
    with monkeypatch.context() as patched:
        patched.setattr("training_runs.COMPUTE", dict(__import__("training_runs").COMPUTE, keep_features=True))
        run_until(tmp_path / "cut", given, monkeypatch, 9)
    alike(train(tmp_path / "cut", given, keep_features=True), whole)
    assert {name: sum(found) for name, found in encoded.items()} == calls


def test_a_trained_encoder_is_not_kept(tmp_path, given, encoded, caplog):
    made = options({"trained": [*NAMED, "vision_tower"], "epochs": 1})
    with caplog.at_level(logging.INFO, "cxr"):
        alike(train(tmp_path / "kept", given, made, keep_features=True), train(tmp_path / "plain", given, made))
    assert "the frozen vision_encoder for" in caplog.text
    made = options({"trained": [*NAMED, "vision_tower", "vision_encoder"], "epochs": 1})
    with caplog.at_level(logging.INFO, "cxr"):
        train(tmp_path / "none", given, made, keep_features=True)
    assert "compute.keep_features: no outputs of encoders are kept, because both encoders are trained" in caplog.text


def test_a_disk_without_room_is_told_before_the_training(tmp_path, given, encoded, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"^compute\.keep_features is true, but .* take 0\.00 GB .* set it to false$"):
        train(tmp_path / "out", given, keep_features=True)
    assert not any(encoded.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_come_back_to_the_bit_and_from_another_process(tmp_path, dtype):
    views = [("a", False), ("a", True), ("b", True)]
    values = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    asked = []

    def encode(pixels):
        asked.append(pixels.tolist())
        return values[pixels.long()]

    first = encoder_cache.DiskCache(tmp_path, "x", views, (2, 5), dtype)
    assert torch.equal(first.get(views[1:], torch.tensor([1.0, 2.0]), encode), values[1:])
    second = encoder_cache.DiskCache(tmp_path, "x", views, (2, 5), dtype)
    assert torch.equal(second.get(views[::-1], torch.tensor([2.0, 1.0, 0.0]), encode), values.flip(0))
    assert asked == [[1.0, 2.0], [0.0]]
    assert (tmp_path / "x.bin").stat().st_size == 3 * 2 * 5 * dtype.itemsize
    with pytest.raises(KeyError):
        second.get([("c", False)], torch.zeros(1), encode)
