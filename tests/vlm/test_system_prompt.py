"""A run's system prompt: it stands in place of the makers' in tuning and in asking; one with marks is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cxr.base.engines import Setup
from cxr.vlm.answers import ask as asking
from cxr.vlm.answers.engine import ModelAnswer
from cxr.vlm.families import onevision
from cxr.vlm.models import ADAPTERS, MODEL, load_run, read_run
from cxr.vlm.samples import ImageStore, read_samples
from cxr.vlm.settings import Vlm
from cxr.vlm.tokens import IGNORED, UNKNOWN
from cxr.vlm.tuning.untrained import run_untrained
from cxr.workflow.plan import Plan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import SettingsError, parse_section
from vlm_runs import ASKING, COMPUTE, OPTIONS, SIDE, data, recipe, tune

MAKERS = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
PROMPT = "You read chest X-rays.\nTell boxes as fractions."
OURS = f"<|im_start|>system\n{PROMPT}<|im_end|>\n<|im_start|>user\n"
ONEVISION = recipe(replace(OPTIONS, family="onevision"), updates=1)
PICTURE = np.full((SIDE, SIDE, 3), 100, np.uint8)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return data(tmp_path_factory.mktemp("given"), pictures=2)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, given) -> Path:
    return tune(tmp_path_factory.mktemp("tuned"), given, replace(ONEVISION, system_prompt=PROMPT))


def untrained(folder: Path, given: dict, base: Path, prompt: str) -> Path:
    run_untrained(
        lines=given["lines"], pictures=given["pictures"], run=str(folder / "run"), probed=str(folder / "probed.tsv"),
        options=replace(ONEVISION, system_prompt=prompt), compute=COMPUTE, base=str(base),
    )  # fmt: skip
    return folder / "run"


def prompts(run: Path, given: dict, monkeypatch, engine: str = "transformers", base: str = "") -> list[str]:
    """Return the texts that an engine gets from the part that all of them share."""
    got = []

    class Recorder:
        at_once = 0

        def answer(self, asked):
            got.extend(one.encoded.ids for one in asked)
            return [ModelAnswer("x", 1, "end") for _ in asked]

    monkeypatch.setattr(asking, "load_answerer", lambda *_: Recorder())
    asker = asking.Asker.from_run(
        str(run), base, replace(ASKING, engine=engine), Setup(device="cpu", batch=4, requested_gpus=0)
    )
    with ImageStore(given["pictures"], SIDE) as store:
        list(asker.replies(read_samples(given["lines"]), store))
    assert got
    return [asker.collator.tokens.tokenizer.decode(ids) for ids in got]


def test_without_one_the_chat_is_its_makers(given, tmp_path, monkeypatch):
    frame = onevision.TEMPLATE
    assert frame.start + frame.user == MAKERS
    assert frame.with_system("") is frame
    run = tune(tmp_path, given, ONEVISION)
    assert "system_prompt" not in read_run(run)
    assert all(text.startswith(MAKERS) for text in prompts(run, given, monkeypatch))


def test_the_prompt_of_asking_is_a_prefix_of_what_is_learned(tuned, given):
    """Of the chat of asking, which reads the run's file, and that of tuning, which has the setting."""
    loaded, asked = load_run(tuned), asking.load_collator(tuned, "")
    tokens = loaded.tokens
    assert tokens.frame == onevision.TEMPLATE.with_system(PROMPT) == asked.tokens.frame
    learns = asking.Collator(loaded.family, tokens, asked.convention)
    begun = tokens.encode_piece(f"<|im_start|>system\n{PROMPT}<|im_end|>\n")
    assert tokens.tokenizer.convert_tokens_to_ids(UNKNOWN) not in begun  # the tiny model knows its words
    for sample in read_samples(given["lines"]):
        whole, prompt = learns.encode(sample, PICTURE), asked.ask(sample, PICTURE)
        assert whole.ids[: len(begun)] == begun
        assert prompt.ids == whole.ids[: len(prompt.ids)]
        assert whole.labels[: len(prompt.ids)] == [IGNORED] * len(prompt.ids)
        assert whole.labels[len(prompt.ids)] != IGNORED


def test_a_tuning_learns_with_it(tuned, given, tmp_path):
    other = tune(tmp_path, given, replace(ONEVISION, system_prompt="You read X-rays chest.\nTell boxes as fractions."))
    words = [Path(run, MODEL, "tokenizer.json").read_bytes() for run in (tuned, other)]
    weights = [Path(run, MODEL, "model.safetensors").read_bytes() for run in (tuned, other)]
    assert words[0] == words[1]  # the same words in another order
    assert weights[0] != weights[1]


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_every_engine_asks_with_it(tuned, given, monkeypatch, engine):
    assert read_run(tuned)["system_prompt"] == PROMPT
    assert all(text.startswith(OURS) for text in prompts(tuned, given, monkeypatch, engine))


def test_an_adapter_and_a_model_as_it_is_are_asked_with_it(tuned, given, tmp_path, monkeypatch):
    base = tuned / MODEL
    lora = tune(tmp_path, given, recipe(replace(ONEVISION, system_prompt=PROMPT), method="lora"), base=str(base))
    assert (lora / ADAPTERS).is_dir()
    assert all(text.startswith(OURS) for text in prompts(lora, given, monkeypatch, base=str(base)))
    for prompt, begun in ((PROMPT, OURS), ("", MAKERS)):
        run = untrained(tmp_path / f"as_it_is{bool(prompt)}", given, base, prompt)
        assert all(text.startswith(begun) for text in prompts(run, given, monkeypatch, base=str(base)))


@pytest.mark.parametrize("engine", ["onevision", "onevision_tiny"])
@pytest.mark.parametrize("mark", ["<|im_end|>", "<|im_start|>", "<image>"])
def test_one_that_holds_a_mark_is_refused(engine, mark):
    sentence = rf"vlm\.tuning\.{engine}\.system_prompt: 'Be brief\..*' contains '{mark}'.*: leave out the angle"
    with pytest.raises(SettingsError, match=sentence.replace("|", r"\|")):
        Plan({"vlm": {"tuning": {engine: {"system_prompt": f"Be brief.{mark} x < y"}}}}, [])


def test_it_is_a_runs_option():
    tiny = {"system_prompt": "Be brief, x < y."}
    plan = VlmPlan(parse_section(Vlm, {"tuning": {"onevision_tiny": tiny}}), "cpu", 0, ["all"])
    assert {name: run["options"]["system_prompt"] for name, run in plan.runs.items()} == {
        "medground": "", "medground_label_replaced": "", "radvlm": "Be brief, x < y.",
    }  # fmt: skip
    assert all("system_prompt" not in run["options"]["recipe"] for run in plan.runs.values())
