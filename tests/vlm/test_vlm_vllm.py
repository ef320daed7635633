"""Answers by a real vLLM on the CPU are those of transformers, for tiny models tuned here (`make vllm`)."""

from dataclasses import replace
from pathlib import Path

import pytest

import vllm_cpu
from cxr.base.tables import read_lines

pytest.importorskip("vllm", reason="vLLM is not installed here: `make vllm` installs and runs it")

pytest.importorskip("torchvision", reason="vLLM's vision-language models import torchvision: `make vllm` installs it")

from cxr.vlm.answers.ask import load_collator
from cxr.vlm.models import MODEL
from vlm_runs import ASKING, OPTIONS, ask, data, differing, recipe, tune


@pytest.fixture(scope="module", autouse=True)
def _cpu():
    with vllm_cpu.environment():
        yield


@pytest.mark.parametrize("family", ["qwen25vl", "qwen3vl", "onevision"])
def test_vllm_gives_the_text_of_transformers(tmp_path, family):
    given = data(tmp_path, pictures=4, sizes=((56, 84),))
    run = tune(tmp_path / "t", given, recipe(replace(OPTIONS, family=family, side=84), updates=60))
    compare(tmp_path, given, run)


def test_vllm_sees_the_tiles_that_a_run_was_tuned_with(tmp_path):
    """One where the base has four."""
    options = replace(OPTIONS, family="onevision", side=128)
    given = data(tmp_path, pictures=4, sizes=((128, 128),))
    base = str(tune(tmp_path / "base", given, recipe(options, updates=30)) / MODEL)
    few = recipe(replace(options, tiling={"tiles": "anyres_max_9", "grid": 1}), updates=30)
    run = tune(tmp_path / "t", given, few, base=base)
    assert load_collator(run, base).family.tiling.pinpoints == [[64, 64]]
    compare(tmp_path, given, run, base)


def compare(folder: Path, given: dict, run: Path, base: str = "") -> None:
    how = replace(ASKING, max_length=512)
    one = ask(folder / "transformers.jsonl", given, run, how, base)
    other = ask(folder / "vllm.jsonl", given, run, replace(how, engine="vllm"), base)
    assert len({line["text"] for line in read_lines(one)}) > 1  # the answers differ by picture or query
    # every word and sign is one token of the tiny tokenizer: equal texts of equal lengths are equal tokens
    assert len(differing(one, other)) <= 1
