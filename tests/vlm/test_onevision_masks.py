"""The base of RadVLM's small model that learnt masks: what it holds, how a run with a head begins from it."""

import hashlib
import json
import re

import pytest
import torch
from safetensors.torch import load_file

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.segmentation.starts import base as head
from cxr.vlm.models import load_model, make_tiny
from cxr.vlm.settings import Vlm
from cxr.vlm.tiny_base import BY_WORD, RESOURCE_FILES, load_base
from cxr.vlm.tokens import SEG
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import parse_section

FOLDER = RESOURCES / "vlm/onevision_tiny"
TEXTS = ["Where is the bicycle in the left lung?", "The left lung is at [0.30, 0.20, 0.55, 0.80]."]
SIDE = Vlm().tuning.onevision_tiny.side
LIMIT = 3 * 10**6
"""Bytes that the repository gives to these weights at most."""
HEAD = {"engine": "onevision_tiny", "lines": "radvlm:all", "segmentation": "head"}


@pytest.fixture(scope="module")
def held() -> dict[str, torch.Tensor]:
    return load_file(RESOURCES / RESOURCE_FILES[2])


def test_it_is_small_and_its_card_names_its_digest(held):
    weights = RESOURCES / RESOURCE_FILES[2]
    card = (FOLDER / "CARD.md").read_text(encoding="utf-8")
    assert weights.stat().st_size < LIMIT
    assert {value.dtype for value in held.values()} == {torch.float16}
    assert hashlib.sha256(weights.read_bytes()).hexdigest() in re.findall(r"`([0-9a-f]{64})`", card)


def test_a_run_with_a_head_begins_with_all_of_it(held, tmp_path):
    """Each tensor and the row of each word that it knows, [SEG] among them, is that of the file."""
    make_tiny("onevision", tmp_path, TEXTS, SIDE, 3)
    load_base(tmp_path, with_masks=True)
    words = json.loads((RESOURCES / RESOURCE_FILES[3]).read_text(encoding="utf-8"))
    begun, own = load_file(tmp_path / "model.safetensors"), load_model("onevision", tmp_path).tokens.tokenizer
    assert own(SEG).input_ids == [len(own) - 1]
    assert begun.keys() == {name for name in held if not name.startswith("segmenter.")}
    for name, value in begun.items():
        if name not in BY_WORD:
            assert torch.equal(value, held[name].float())
            continue
        for word in own.get_vocab().keys() & set(words):
            assert torch.equal(value[own.get_vocab()[word]], held[name][words.index(word)].float())


def test_the_head_is_the_one_that_it_learnt(held):
    found = head.load(held["language_model.model.norm.weight"].shape[0], "", 1).state_dict()
    assert {f"segmenter.{name}" for name in found} == {name for name in held if name.startswith("segmenter.")}
    assert all(torch.equal(value, held[f"segmenter.{name}"].float()) for name, value in found.items())


def test_hidden_states_of_another_length_are_refused():
    with pytest.raises(UserError, match=r"masks.safetensors holds weights that do not fit the model \(.*project\.0"):
        head.load(64, "", 1)


def test_a_run_with_a_head_begins_from_it_and_no_other_run():
    settings = parse_section(Vlm, {"tuning": {"runs": {"masks": HEAD, "plain": HEAD | {"segmentation": "none"}}}})
    plan = VlmPlan(settings, "cpu", 0, ["all"])
    assert [plan.runs[name]["options"]["init"] for name in ("masks", "plain")] == ["base_masks", "base"]
    assert plan.tuning_modules[-1] == "segmentation.starts.base"
    other = parse_section(Vlm, {"tuning": {"runs": {"masks": HEAD}, "onevision_tiny": {"seg_start": "lite"}}})
    assert VlmPlan(other, "cpu", 0, ["all"]).runs["masks"]["options"]["init"] == "base"


def test_without_the_base_there_is_no_head_of_it():
    tuning = {"runs": {"masks": HEAD | {"init": "random"}}}
    settings = parse_section(Vlm, {"tuning": tuning, "answers": {"sets": {}}})
    told = "init is 'random', while seg_start 'base' needs init 'base': set vlm.tuning.onevision_tiny.seg_start to"
    with pytest.raises(UserError, match=f"runs.masks.segmentation is 'head', but {told} lite"):
        VlmPlan(settings, "cpu", 0, ["all"])
    tuning["onevision_tiny"] = {"seg_start": "lite"}
    settings = parse_section(Vlm, {"tuning": tuning, "answers": {"sets": {}}})
    assert VlmPlan(settings, "cpu", 0, ["all"]).runs["masks"]["options"]["init"] == "random"
