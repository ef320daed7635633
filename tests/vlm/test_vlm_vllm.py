"""Answers by a real vLLM on the CPU are those of transformers, for tiny models tuned here (`make vllm`)."""

from dataclasses import replace

import pytest

import vllm_cpu
from cxr.base.tables import read_lines

pytest.importorskip("vllm", reason="vLLM is not installed here: `make vllm` installs and runs it")

pytest.importorskip("torchvision", reason="vLLM's vision-language models import torchvision: `make vllm` installs it")

from vlm_runs import ASKING, OPTIONS, ask, data, recipe, tune


@pytest.fixture(scope="module", autouse=True)
def _cpu():
    with vllm_cpu.environment():
        yield


@pytest.mark.parametrize("family", ["qwen25vl", "qwen3vl", "onevision"])
def test_vllm_gives_the_text_of_transformers(tmp_path, family):
    given = data(tmp_path, pictures=4, sizes=((56, 84),))
    run = tune(tmp_path / "t", given, recipe(replace(OPTIONS, family=family, side=84), updates=60))
    how = replace(ASKING, own={"eager": True}, max_length=512)
    one = ask(tmp_path / "transformers.jsonl", given, run, how)
    other = ask(tmp_path / "vllm.jsonl", given, run, replace(how, engine="vllm"))
    said = [[(line["text"], line["tokens"], line["stop"]) for line in read_lines(path)] for path in (one, other)]
    assert len(set(said[0])) > 1  # the answers differ by picture or query
    # every word and sign is one token of the tiny tokenizer: equal texts of equal lengths are equal tokens
    assert said[1] == said[0]
