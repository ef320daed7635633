"""A stand-in for MedGround's language models, and the stages' functions around it, on drawn cells."""

import json
import re
from dataclasses import fields
from pathlib import Path

from cxr.base.tables import read_lines, read_table
from cxr.llm.settings import LlmSettings
from cxr.medground.queries import ask_model, make_queries
from cxr.medground.queries.ask_model import QuestionOptions
from cxr.medground.verification import ask_judge, verify
from cxr.medground.verification.ask_judge import JudgeOptions
from medground_data import SETTINGS, queries_options, verification_options

MODEL = "tests/looks-at-cells"
ASKED = ("confirm", "select")
COMPUTE = {"failures_in_row": 0, "failed_share": 1.0}


def text_of(message: dict) -> str:
    """Return the text of a message, as a server or a stand-in receives it."""
    content = message["content"]
    if isinstance(content, str):
        return content
    texts = (part.get("text", "") if isinstance(part, dict) else part for part in content)
    return "".join(one for one in texts if isinstance(one, str))


def targets_of(messages: list[dict]) -> list[list[int]]:
    """Return the numbers of the boxes of each target that a question for queries names."""
    told = text_of(messages[-1]).partition("Targets, one expression for each line:")[2]
    return [[int(one) for one in re.findall(r"\d+", line)] for line in told.splitlines() if line.strip()]


def worded(targets: list[list[int]]) -> dict:
    """Return a good answer for targets: words that claim nothing, so that only form is verified."""
    letters = "abcdefghijkl"
    return {
        "queries": [
            {"text": f"Show what was set for turn {letters[at]} here please.", "targets": target}
            for at, target in enumerate(targets)
        ]
    }


def well(messages: list[dict], schema: dict) -> str:
    """Answer each kind of question well; of a judge: all is right, and the first number is selected."""
    if "queries" in schema["properties"]:
        return json.dumps(worded(targets_of(messages)))
    if "targets" in schema["properties"]:
        return json.dumps({"targets": schema["properties"]["targets"]["items"]["enum"][:1]})
    return json.dumps({"observed": "a dark disc", "grounded": True, "unambiguous": True, "reason": "it matches"})


def _options(kind: type, section, own: dict) -> object:
    llm = LlmSettings().as_dict() | {"temperature": 0.0} | SETTINGS.llm.as_dict() | section.llm.as_dict()
    known = {field.name for field in fields(kind)}
    shared = section.as_dict()
    given = {name: value for name, value in (shared | llm | own).items() if name in known}
    return kind(**given)


def question_options(**own: object) -> QuestionOptions:
    """Return the options of asking for queries: the settings' own, a server, ``own``."""
    base = {"key": "medground.queries.llm", "transport": "server", "model": MODEL, "seed": 7, "pictures": 2,
            "source": "cells", "retries": 1}  # fmt: skip
    return _options(QuestionOptions, SETTINGS.queries, base | own)


def judge_options(**own: object) -> JudgeOptions:
    """Return the options of asking a judge."""
    base = {"key": "medground.verification.llm", "transport": "server", "model": MODEL, "seed": 7, "pictures": 1,
            "source": "cells", "retries": 1}  # fmt: skip
    return _options(JudgeOptions, SETTINGS.verification, base | own)


def execution(address: str, **own: object) -> dict:
    """Return the section of the settings on how a model is run."""
    return LlmSettings().as_dict() | {"server": address, "requests": 1, "timeout_s": 20} | own


def files_of(folder: Path) -> dict[str, str]:
    """Return the inputs that all stages share."""
    return {
        "sources": str(folder / "sources/00.h5"), "images": str(folder / "sources/images.parquet"),
        "regions": str(folder / "regions/00.parquet"),
    }  # fmt: skip


def ask(
    folder: Path, out: Path, address: str, prompts: list[str] | None = None, code: str = "", **own: object
) -> list[dict]:
    """Ask for the queries of a folder of cells; return the lines of answers."""
    files = {name: [path] for name, path in files_of(folder).items()}
    ask_model.run(
        **files, answers=[str(out / "told.jsonl")], prompts=prompts or [],
        options=question_options(shard_sources=["cells"], **own),
        execution=execution(address), compute=COMPUTE, code=code,
    )  # fmt: skip
    return list(read_lines(out / "told.jsonl"))


def make_from_answers(folder: Path, out: Path) -> tuple[list[dict], list[dict]]:
    """Read the answers; return the candidates and the rows of the wanted queries that lack."""
    make_queries.run_shard(
        **files_of(folder), shifted=str(folder / "regions/00.shifted.parquet"), output=str(out / "q.jsonl"),
        unasked=str(out / "u.parquet"), model_answers=[str(out / "told.jsonl")],
        **queries_options("cells", engine="vllm"),
    )  # fmt: skip
    return list(read_lines(out / "q.jsonl")), read_table(out / "u.parquet").to_dicts()


def judge(folder: Path, out: Path, address: str, modes: tuple[str, ...] = ASKED, code: str = "", **own: object):
    """Ask the judge and verify; return the accepted lines and {query: (stage, reason, detail)} of the rejected."""
    files = {name: [path] for name, path in (files_of(folder) | {"queries": str(out / "q.jsonl")}).items()}
    ask_judge.run(
        **files, answers=[str(out / f"{asked}.jsonl") for asked in modes],
        execution=execution(address), compute=COMPUTE,
        options=judge_options(shard_sources=["cells"], ways=modes, **own), code=code,
    )  # fmt: skip
    told = {asked: [str(out / f"{asked}.jsonl")] for asked in modes}
    verify.run_shard(
        **files_of(folder), **told, queries=str(out / "q.jsonl"), output=str(out / "v.jsonl"),
        rejected=str(out / "r.parquet"), **verification_options(judge="vllm"),
    )  # fmt: skip
    gone = read_table(out / "r.parquet").to_dicts()
    return list(read_lines(out / "v.jsonl")), {
        row["query_id"]: (row["stage"], row["reason"], row["detail"]) for row in gone
    }
