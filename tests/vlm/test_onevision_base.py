"""The base of RadVLM's small model: what it holds, how a tuning begins from it, and what it never saw."""

import hashlib
import importlib
import json
import random
import re
import sys

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cxr.base.hdf5 import ShardWriter
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS
from cxr.imaging.phantom.chest import draw_chest as sample_chest
from cxr.imaging.phantom.make_phantom import TRUTH_LABELS
from cxr.vlm.families import onevision
from cxr.vlm.models import load_model, make_tiny
from cxr.vlm.samples import Sample
from cxr.vlm.settings import Vlm
from cxr.vlm.tiny_base import BY_WORD, RESOURCE_FILES, load_base
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings, parse_section

FOLDER = RESOURCES / "vlm/onevision_tiny"
TEXTS = ["Where is the bicycle in the left lung?", "The left lung is at [0.30, 0.20, 0.55, 0.80]."]
SIDE = Vlm().tuning.onevision_tiny.side
LIMIT = 3 * 10**6
"""Bytes that the repository gives to these weights at most."""


@pytest.fixture(scope="module")
def trained():
    """The modules from which the base was made, by name; other weights have modules of their names."""
    names = ("lesions", "data", "updates", "tower")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(FOLDER)
        for name in names:
            patched.delitem(sys.modules, name, raising=False)
        modules = {name: importlib.import_module(name) for name in names}
        for name in names:
            sys.modules.pop(name)
    return modules


@pytest.fixture(scope="module")
def data(trained):
    """The module that moves pictures for the training of the base."""
    return trained["data"]


def test_it_is_small_and_its_card_names_its_digest_and_licence():
    weights = FOLDER / "model.safetensors"
    card = (FOLDER / "CARD.md").read_text(encoding="utf-8")
    assert weights.stat().st_size < LIMIT
    assert {value.dtype for value in load_file(weights).values()} == {torch.float16}
    assert re.search(r"`([0-9a-f]{64})`", card)[1] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert re.search(r"^\| Licence \| \*\*non-commercial use only", card, flags=re.M)


def test_a_tuning_begins_with_all_of_it_and_new_words_beside(tmp_path):
    drawn, begun = tmp_path / "drawn", tmp_path / "begun"
    for folder in (drawn, begun):
        make_tiny("onevision", folder, TEXTS, SIDE, 3)
    load_base(begun)
    words = json.loads((FOLDER / "words.json").read_text(encoding="utf-8"))
    base, before, after = (load_file(one / "model.safetensors") for one in (FOLDER, drawn, begun))
    own = load_model("onevision", begun).tokens.tokenizer.get_vocab()
    assert " left" in words
    assert " bicycle" not in words
    for name, value in after.items():
        if name not in BY_WORD:
            assert torch.equal(value, base[name].float())
            continue
        for word, row in own.items():
            wanted = base[name][words.index(word)].float() if word in words else before[name][row]
            assert torch.equal(value[row], wanted)


def test_only_a_run_of_the_small_model_begins_from_it():
    plan = VlmPlan(Vlm(), "cpu", 0, ["all"])
    assert plan.runs["radvlm"]["options"]["init"] == "base"
    assert "init" not in plan.runs["medground"]["options"]
    run = {"engine": "onevision_tiny", "lines": "radvlm:all", "init": "random"}
    settings = parse_section(Vlm, {"tuning": {"runs": {"radvlm": run}}})
    assert VlmPlan(settings, "cpu", 0, ["all"]).runs["radvlm"]["options"]["init"] == "random"
    assert all((RESOURCES / name).is_file() for name in RESOURCE_FILES)


def test_the_demo_is_not_among_what_it_learnt(data):
    """The base that learnt masks has its cohort of the same table."""
    assert data.COHORTS
    assert Settings().seed not in data.COHORTS


def test_it_has_the_words_of_regions_and_boxes():
    words = set(json.loads((FOLDER / "words.json").read_text(encoding="utf-8")))
    assert set("0123456789[],.") <= words
    assert onevision.TEMPLATE.picture in words


def test_a_box_moves_with_its_picture(data):
    """A bright rectangle in a moved picture lies where its moved box says, to a pixel."""
    drawn = random.Random(5)
    found = 0
    for _ in range(60):
        left, top = drawn.uniform(0.1, 0.4), drawn.uniform(0.1, 0.4)
        right, bottom = left + drawn.uniform(0.2, 0.5), top + drawn.uniform(0.2, 0.5)
        picture = np.zeros((240, 200), np.uint8)
        picture[round(top * 240) : round(bottom * 240), round(left * 200) : round(right * 200)] = 255
        box = [round(left * 200) / 200, round(top * 240) / 240, round(right * 200) / 200, round(bottom * 240) / 240]
        of = data.window(drawn)
        told = data.seen_in(np.array([box]), of)[0]
        rows, columns = np.nonzero(data.cut(picture, of, (120, 100)) > 127)
        if np.isnan(told).any():
            continue
        found += 1
        seen = [columns.min() / 100, rows.min() / 120, (columns.max() + 1) / 100, (rows.max() + 1) / 120]
        assert np.abs(told - seen).max() <= 0.015
    assert found > 20


def test_a_sample_whose_box_would_be_cut_stays_as_it_is(data):
    boxes = {"lung": [[0.0, 0.0, 1.0, 1.0]], "spot": [[0.0, 0.0, 0.02, 0.02]]}
    sample = Sample("s", "i", "own", "train", "t", (), boxes=boxes)
    picture = np.full((200, 200), 90, np.uint8)
    kept = [data.shown(sample, picture, 128, random.Random(number), 1.0)[0] for number in range(40)]
    for one in kept:
        for boxes in one.boxes.values():
            (x1, y1, x2, y2) = boxes[0]
            assert 0 <= x1 < x2 <= 1
            assert 0 <= y1 < y2 <= 1
    assert any(one is sample for one in kept)
    assert any(one is not sample for one in kept)


def test_copies_are_painted_where_their_masks_say(trained, tmp_path):
    """The truth's own lesion stays, further ones change the picture there alone, and a seed gives the same copies."""
    chest = sample_chest(np.random.default_rng(4), (256, 256), cardiomegaly=False, ap=False)
    truth = {name: np.zeros((256, 256), bool) for name in TRUTH_LABELS} | chest.masks
    truth["opacity"][60:80, 60:80] = True
    frame = np.stack([truth[name] for name in TRUTH_LABELS])
    with ShardWriter(tmp_path / "truth.h5", labels=TRUTH_LABELS) as shard:
        shard.append("one", mask=frame)
    picture = np.rint(chest.image * 255).astype(np.uint8)
    covered = {"one": (slice(0, 256), slice(0, 256))}
    made, again = (
        list(trained["lesions"].drawn(tmp_path / "truth.h5", {"one": picture}, covered, 7)) for _ in range(2)
    )
    first, *copies = made
    assert np.array_equal(first.picture, picture)
    assert np.argwhere(~np.isnan(first.boxes()[:, 0])).ravel().tolist() == [LESIONS.index("opacity")]
    assert first.boxes()[LESIONS.index("opacity")] == pytest.approx([60 / 256, 60 / 256, 80 / 256, 80 / 256])
    assert len(copies) == trained["lesions"].COPIES
    for copy, other in zip(copies, again[1:], strict=True):
        assert np.array_equal(copy.picture, other.picture)
        held = cv2.resize(copy.masks.max(0), (256, 256), interpolation=cv2.INTER_NEAREST)
        near = cv2.dilate(held, np.ones((17, 17), np.uint8)) > 0
        changed = cv2.absdiff(copy.picture, picture) > 40
        assert changed.any()
        assert not changed[~near].any()


def test_quarters_of_a_window_cover_it_once(trained):
    parts = [trained["tower"].part((0.1, 0.2, 0.8, 0.6), quarter) for quarter in range(4)]
    assert np.array(parts) == pytest.approx(
        np.array([[0.1, 0.2, 0.4, 0.3], [0.5, 0.2, 0.4, 0.3], [0.1, 0.5, 0.4, 0.3], [0.5, 0.5, 0.4, 0.3]])
    )
    assert trained["tower"].part((0.1, 0.2, 0.8, 0.6), None) == (0.1, 0.2, 0.8, 0.6)


def test_what_a_patch_tells_of_pixels_lies_in_that_patch(trained):
    """Each of 16 patches has a feature of its own; the layer returns the patch's number for each lesion and cell."""
    tower = trained["tower"]
    heads = tower.Heads(16, np.zeros((2, 4)), np.zeros((len(LESIONS), 4)))
    with torch.no_grad():
        heads.pixels.weight.copy_(torch.arange(16.0).expand_as(heads.pixels.weight))
        heads.pixels.bias.zero_()
        told = heads.maps(torch.eye(16)[None])[0]
    wanted = np.kron(np.arange(16).reshape(4, 4), np.ones((tower.FINE, tower.FINE)))
    assert told.shape == (len(LESIONS), 16, 16)
    assert all(np.array_equal(one, wanted) for one in told.numpy())
