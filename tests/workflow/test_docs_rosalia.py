"""The pages of ROSALIA and its evaluation (docs/systems): settings are settings, numbers are the model's."""

import re

import pytest
import torch
import yaml
from transformers import LlamaConfig, LlavaConfig

from conftest import ROOT
from cxr.ils.evaluation.adapters import ADAPTERS
from cxr.ils.evaluation.answer_rules import RULES
from cxr.ils.evaluation.predictions import FAILURES
from cxr.ils.rosalia.config import CLIP_L14
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.training import train
from cxr.ils.training.settings import LoraSettings
from cxr.segmentation.published import make_sam_vit_h_config
from cxr.workflow import settings
from cxr.workflow.plan_ils import evaluated_models, run_options

PAGES = ("rosalia", "evaluation")


def page(name: str) -> str:
    return (ROOT / f"docs/systems/{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[dict]:
    return [yaml.safe_load(block) for block in re.findall(r"^ *```yaml\n(.*?)^ *```", page(name), flags=re.S | re.M)]


@pytest.mark.parametrize(("name", "number"), [("rosalia", 5), ("evaluation", 1)])
def test_settings_in_the_docs_are_settings(name, number):
    found = blocks(name)
    assert len(found) == number
    for block in found:
        settings.read(block)


def test_the_ablations_are_runs_of_their_own():
    chosen = next(block for block in blocks("rosalia") if "half" in block.get("training", {}).get("runs", {}))
    found = run_options(settings.read(chosen))
    half = {"train": "results/dataset/half/train.jsonl", "thresholds": "half", "test": "default", "wordings": []}
    assert {name: found["half"][name] for name in half} == half
    assert found["paraphrased"]["wordings"] == "results/paraphrase/default/wordings.jsonl"
    assert found["mine"]["train"] == "/data/mine/train.jsonl"
    assert {run["test"] for run in evaluated_models(settings.read(chosen), found).values()} == {"default", "half"}


@pytest.fixture(scope="module")
def model() -> tuple[Rosalia, int]:
    """LISA-7B's sizes, its tokens included, with adapters of rank 1; and how many values it has without them."""
    text = LlamaConfig(vocab_size=32004)
    llava = LlavaConfig(vision_config=CLIP_L14, text_config=text, projector_hidden_act="linear", image_token_index=7)
    with torch.device("meta"):
        model = Rosalia.from_configs(llava, make_sam_vit_h_config(), 32000)
        whole = sum(value.numel() for value in model.parameters())
        train.add_adapters(model, LoraSettings(rank=1, alpha=2))
    return model, whole


def test_the_memory_of_one_card_is_what_the_model_has(model):
    model, whole = model
    adapters_of_1 = sum(value.numel() for value in model.parameters()) - whole
    rows = re.findall(
        r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| \*{0,2}([\d.]+)\*{0,2} \|$", page("rosalia"), re.M
    )
    assert [int(row[0]) for row in rows] == [128, 64, 32, 16, 8]
    paper = settings.Settings().training.rosalia.trained
    for rank, *told in rows:
        for trained, million, gigabytes in ((paper, *told[:2]), (["project", "mask_decoder"], *told[2:])):
            adapters = int(rank) * adapters_of_1
            chosen = (
                sum(value.numel() for value in train.select_trained(model, trained).values()) + adapters - adapters_of_1
            )
            assert whole == pytest.approx(7.70e9, rel=1e-3)
            assert float(million) == pytest.approx(chosen / 1e6, abs=0.06)
            assert float(gigabytes) == pytest.approx(2 + (2 * (whole + adapters) + 14 * chosen) / 1e9, abs=0.06)


def test_the_card_of_24_gb_has_the_settings_of_the_table():
    (card,) = [block for block in blocks("rosalia") if "rosalia" in block.get("training", {})]
    recipe = settings.read(card).training.rosalia
    assert (recipe.lora.rank, recipe.trained, recipe.runner) == (16, ["project", "mask_decoder"], "deepspeed")
    assert recipe.gradient_checkpointing


def test_all_that_can_be_chosen_is_explained():
    text = page("evaluation")
    for word in (*ADAPTERS, *RULES, *FAILURES):
        assert f"`{word}`" in text, word
