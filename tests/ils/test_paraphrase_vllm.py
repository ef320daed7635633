"""Paraphrases by a real vLLM, in the job and as a server, with a small Llama trained here (`make vllm`).

The model learns by heart what to answer, and for some instructions an answer that must be refused.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

import tiny_llm
import vllm_cpu
from conftest import snakemake, write_settings
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.base.vocabulary import PERSONAS, SPLITS
from cxr.ils.paraphrase import rules, vllm
from cxr.ils.paraphrase.engine import Task
from cxr.ils.paraphrase.wording_checks import parse_wording
from cxr.ils.templates import parse_instruction
from cxr.llm.options import RETRIES

pytest.importorskip("vllm", reason="vLLM is not installed here: `make vllm` installs and runs it")

NUMBER = 3
RIGHT = [
    "Segment the cardiomegaly.",
    "Segment the edema.",
    "Segment the pneumonia in the right lung.",
    "Segment the atelectasis in the left lung base.",
    "Segment the consolidation in the right upper zone lung and left apical zone lung.",
    "Segment the effusion in the right lung base and left lung base.",
    "Segment the opacity in the left mid zone lung.",
    "Segment the opacity in the right lung base and predict its type.",
]
SIDE = "Segment the effusion in the right lung base."
TWICE = "Segment the consolidation."
LESION = "Segment the edema in the left lung."
SHARED = "Segment the pneumonia."
UNTYPED = "Segment the opacity in the left lung base and predict its type."
WRONG = {
    (SIDE, "layperson"): (["Mark the fluid around the lung at the base of the left lung."], "names other locations"),
    (TWICE, "medical_expert"): (["Outline the consolidation."] * 2, "comes twice"),
    (LESION, "ai_developer"): (["Return a mask of the effusion in the left lung."], "names another lesion type"),
    (UNTYPED, "layperson"): (["Mark the opacity in the left lung base."], "is another type of instruction"),
    # what an earlier persona has said: the model is never told of it
    (SHARED, "ai_developer"): (["Delineate the pneumonia on this radiograph."], "comes twice"),
}
"""Wordings that the model learns to begin its answer with, and why they are refused."""
MORE = ("Segment the edema.", "layperson")
"""The model learns to add a key to this answer, which the schema forbids."""
INSTRUCTIONS = sorted([*RIGHT, SIDE, TWICE, LESION, SHARED, UNTYPED])
UNKNOWN = "Where is the swelling?"


def taught(text: str, persona: str) -> list[str]:
    """Return what the model is to answer: the wordings of the rules, behind a wrong one where it is to be refused."""
    wrong, _ = WRONG.get((text, persona), ([], ""))
    return [*wrong, *rules.list_wordings(parse_instruction(text), persona)][:NUMBER]


def answer(text: str, persona: str) -> str:
    """Return the answer that the model learns."""
    more = {"remark": "Three wordings."} if (text, persona) == MORE else {}
    return json.dumps({"wordings": taught(text, persona)} | more)


@pytest.fixture(scope="module", autouse=True)
def _cpu():
    with vllm_cpu.environment():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The model, in the files of a published one."""
    lessons = [
        (vllm.make_question(Task(text, parse_instruction(text)), persona, NUMBER).messages, answer(text, persona))
        for text in INSTRUCTIONS
        for persona in PERSONAS
    ]
    return tiny_llm.learnt(tmp_path_factory, lessons, steps=200)


def reworded(directory: Path, model: str, **llm) -> list[dict]:
    """Run the stage as a user does, on a dataset with each instruction in one split; ``llm``: the settings of it."""
    stage = {"engine": "vllm", "per_persona": NUMBER, "llm": {"model": model, "revision": "", "max_tokens": 400}}
    write_settings(directory, {"paraphrase": stage, "llm": llm})
    texts = [*INSTRUCTIONS, UNKNOWN]
    for number, split in enumerate(SPLITS):
        lines = [{"pair_id": text, "instruction": text} for text in texts[number::2]]  # some in two splits
        write_lines(directory / f"results/dataset/default/{split}.jsonl", lines)
    target = "results/paraphrase/default/wordings.jsonl"
    snakemake(directory, target, "--allowed-rules", "paraphrase_instructions", "paraphrase_wordings", cores=1)
    return list(read_lines(directory / target))


def check(directory: Path, lines: list[dict], model: str) -> None:
    """Check what holds whatever a model says, and that this one was not refused for nothing."""
    texts = sorted([*INSTRUCTIONS, UNKNOWN])
    assert [(line["instruction"], line["persona"]) for line in lines] == [
        (text, persona) for text in texts for persona in PERSONAS
    ]
    assert {line["made_by"] for line in lines} == {model}
    accepted = [line for line in lines if line["wordings"]]
    for line in accepted:
        assert len(line["wordings"]) == NUMBER
        assert (line["problem"], line["raw"]) == (None, "")
        for wording in line["wordings"]:
            assert parse_wording(wording) == parse_instruction(line["instruction"])
    told = [wording.lower() for line in accepted for wording in line["wordings"]]
    assert len({*told, *map(str.lower, texts)}) == len(told) + len(texts)
    refused = {(line["instruction"], line["persona"]): line for line in lines if not line["wordings"]}
    for key, (_, why) in WRONG.items():
        assert refused[key]["problem"].endswith(why)
        assert refused[key]["attempts"] == 1 + RETRIES
        assert len(json.loads(refused[key]["raw"])["wordings"]) == NUMBER  # wrong, but inside the schema
    assert [refused[UNKNOWN, persona]["attempts"] for persona in PERSONAS] == [0] * 3
    # what a model says in place of a forbidden key, it has not learned: it may need all attempts, or fail
    (constrained,) = [line for line in lines if (line["instruction"], line["persona"]) == MORE]
    assert constrained["wordings"] in (taught(*MORE), [])
    assert "remark" not in constrained["raw"]
    right = [line for line in accepted if line["wordings"] == taught(line["instruction"], line["persona"])]
    assert len(right) >= 0.8 * (len(lines) - len(PERSONAS) - len(WRONG))
    counts = read_table(directory / "results/paraphrase/default/counts.tsv")
    assert counts["reworded"].sum() == len(accepted)
    assert counts["plain_only"].sum() == len(refused)
    assert counts["instructions"].sum() == len(lines)
    reasons = Counter(line["problem"] for line in refused.values())
    said = Counter()
    for row in filter(None, counts["why"]):
        for part in row.split("; "):
            reason, _, number = part.rpartition(": ")
            said[reason] += int(number)
    assert said == reasons


@pytest.fixture(scope="module")
def offline(folder, tmp_path_factory) -> tuple[Path, list[dict]]:
    directory = tmp_path_factory.mktemp("offline")
    return directory, reworded(directory, str(folder), gpus=0)


@pytest.mark.slow
def test_a_model_in_the_job_words_each_instruction_and_is_read_back(offline, folder):
    check(*offline, str(folder))


@pytest.mark.slow
def test_a_served_model_gives_the_same(offline, folder, tmp_path):
    with vllm_cpu.served(folder, tmp_path / "server.log") as address:
        lines = reworded(tmp_path, str(folder), transport="server", server=address)
    check(tmp_path, lines, str(folder))
    same = [ours == theirs for ours, theirs in zip(offline[1], lines, strict=True)]
    assert sum(same) >= 0.8 * len(same)
