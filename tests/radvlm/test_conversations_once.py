"""One load of a language model serves all sources and parts of the conversations; the parts need no model."""

import json
from pathlib import Path

import pytest
from test_conversations import EXECUTION, MODEL

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.conversations import converse, vllm
from cxr.radvlm.conversations.engine import ConversationOptions
from radvlm_mix import sources

WORKS = [("own", part, ["standard", "grounded"]) for part in converse.PARTS]
WORKS += [("other", part, ["grounded"]) for part in converse.PARTS]
ASKED: list[str] = []
STOP = [0]
"""Number of questions after which the job is cut off; 0: never."""
OUTPUTS = {"lines": "jsonl", "excluded": "excluded.parquet", "outcomes": "outcomes.tsv"}


def answer(messages: list[dict], schema: dict) -> str:
    """Answer with rounds whose number depends on the question; every third length gets one too few."""
    del schema
    if len(ASKED) == STOP[0] > 0:
        raise KeyboardInterrupt
    ASKED.append(messages[-1]["content"])
    number = 4 if len(ASKED[-1]) % 3 == 0 else 5 + len(ASKED[-1]) % 5
    rounds = [{"question": f"What of {one}?", "answer": f"{len(ASKED[-1])} of {one}."} for one in range(number)]
    return json.dumps({"rounds": rounds})


def options(kinds: list[str]) -> ConversationOptions:
    model = MODEL | {"model": "test_conversations_once:answer"}
    return ConversationOptions("vllm", 1, 100, "json", 42, kinds=kinds, model=model)


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch) -> None:
    for module in (converse, vllm):
        monkeypatch.setattr(module, "BATCH_SIZE", 4)
    ASKED.clear()
    STOP[0] = 0


@pytest.fixture(scope="module")
def files(workflow_run, tmp_path_factory) -> dict:
    made = sources(workflow_run / "results", tmp_path_factory.mktemp("once"))
    lists = {"facts": "facts.parquet", "texts": "filtered.jsonl"}
    given = {"images": str(made / "images.parquet"), "phrases": str(made / "phrases.jsonl"), "elsewhere": []}
    return given | {"pairs": []} | {name: [str(made / file)] for name, file in lists.items()}


def ask_once(files: dict, folder: Path, code: str = "c") -> list[Path]:
    outputs = [folder / source / f"{part}.told.jsonl" for source, part, _ in WORKS]
    works = [{"source": source, "part": part, "kinds": kinds, "files": files} for source, part, kinds in WORKS]
    replies = list(map(str, outputs))
    vllm.run(files=[], replies=replies, works=works, options=options([]), execution=EXECUTION, code=code)
    return outputs


def parts(files: dict, folder: Path, answers: list[list[str]]) -> dict[str, bytes]:
    """Make all parts; returns {name: bytes} of their files."""
    made = {}
    for (source, part, kinds), said in zip(WORKS, answers, strict=True):
        out = {name: str(folder / source / f"{part}.{ending}") for name, ending in OUTPUTS.items()}
        converse.run_part(
            **files, **out, part=part, replies=said, options=options(kinds), execution=EXECUTION,
            attrs={"code_digest": "c"},
        )  # fmt: skip
        made |= {f"{source}/{Path(path).name}": Path(path).read_bytes() for path in out.values()}
    return made


def test_one_load_serves_all_and_the_parts_have_the_bytes_of_a_model_in_each(files, loads, tmp_path):
    apart = parts(files, tmp_path / "apart", [[]] * len(WORKS))
    assert len(loads) == len(WORKS)
    loads.clear()
    outputs = ask_once(files, tmp_path / "once")
    assert len(loads) == 1
    loads.clear()
    ASKED.clear()
    assert parts(files, tmp_path / "once", [[str(path)] for path in outputs]) == apart
    assert (loads, ASKED) == ([], [])
    lines = [line for path in outputs for line in read_lines(path)]
    assert {line["attempt"] for line in lines} == {0, 1}  # answers that break the schema were asked again
    kept = list(read_lines(tmp_path / "once/own/train.jsonl"))
    assert {line["engine"] for line in kept} == {"test_conversations_once:answer"}
    assert len(kept) > converse.BATCH_SIZE


def test_a_job_that_was_cut_off_asks_nothing_twice(files, loads, tmp_path):
    whole = [path.read_bytes() for path in ask_once(files, tmp_path / "whole")]
    number = len(ASKED)
    ASKED.clear()
    STOP[0] = 10
    with pytest.raises(KeyboardInterrupt):
        ask_once(files, tmp_path / "cut")
    assert not (tmp_path / "cut/own/train.told.jsonl").exists()
    assert len(ASKED) == 10
    held = sum(1 for path in (tmp_path / "cut/answers").rglob("answers-*.jsonl") for _ in read_lines(path))
    assert 10 - converse.BATCH_SIZE < held <= 10
    ASKED.clear()
    STOP[0] = 0
    loads.clear()
    assert [path.read_bytes() for path in ask_once(files, tmp_path / "cut")] == whole
    assert (len(loads), len(ASKED)) == (1, number - held)
    loads.clear()
    ask_once(files, tmp_path / "cut")
    assert loads == []  # nothing is left to ask, so nothing is loaded
    ask_once(files, tmp_path / "cut", code="d")
    assert len(loads) == 1


def test_answers_that_lack_a_question_are_refused(files, loads, tmp_path):
    first, *_ = ask_once(files, tmp_path)
    short = tmp_path / "short.jsonl"
    write_lines(str(short), list(read_lines(first))[1:], checked=True)
    with pytest.raises(UserError, match=r"have answers to only 3 of 4 questions: make .*--forcerun radvlm_"):
        parts(files, tmp_path / "parts", [[str(short)]] * len(WORKS))
