"""One load of a language model serves all sources and shards, and a job that was cut off goes on where it stopped."""

from pathlib import Path

import pytest

from conftest import ROOT, write_settings
from cxr.llm import client
from cxr.llm.answer_cache import question_key
from cxr.llm.asking import Question
from cxr.medground import asking
from cxr.medground.queries import ask_model, make_queries
from cxr.medground.verification import ask_judge
from medground_data import make_regions_of, queries_options, read_source, source_keys
from medground_model import COMPUTE, execution, judge_options, question_options
from planner import Planner

SHARDS = ("00", "01")
OF = ["cells", "cells", "others"]
"""Sources of three shards; the last is the first one's files again."""
STAND_IN = {"transport": "stand_in", "model": "medground_model:well"}
WAYS = ("confirm", "select")


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("once") / "cells"
    read_source(folder, source_keys(kind="cells", domain="nuclei"), shards=2, cells=6, name="cells")
    return make_regions_of(folder)


def files_of(cells: Path, shards: list[str], sources: list[str]) -> dict[str, list[str]]:
    return {
        "sources": [str(cells / f"sources/{one}.h5") for one in shards],
        "regions": [str(cells / f"regions/{one}.parquet") for one in shards],
        "images": [str(cells / "sources/images.parquet")] * len(set(sources)),
    }


def words(cells: Path, out: Path, shards: list[str], of: list[str]) -> list[bytes]:
    told = [out / name / f"{shard}.told.jsonl" for name, shard in zip(of, shards, strict=True)]
    ask_model.run(
        **files_of(cells, shards, of), answers=list(map(str, told)), execution=execution(""),
        options=question_options(shard_sources=of, **STAND_IN), compute=COMPUTE, code="c",
    )  # fmt: skip
    return [path.read_bytes() for path in told]


def verdicts(cells: Path, out: Path, shards: list[str], of: list[str], queries: list[str]) -> list[bytes]:
    pairs = list(zip(of, shards, strict=True))
    told = [out / name / f"{shard}.{asked}.jsonl" for asked in WAYS for name, shard in pairs]
    ask_judge.run(
        **files_of(cells, shards, of), queries=queries, answers=list(map(str, told)), execution=execution(""),
        options=judge_options(shard_sources=of, ways=WAYS, **STAND_IN), compute=COMPUTE, code="c",
    )  # fmt: skip
    return [path.read_bytes() for path in told]


def test_one_load_serves_all_with_the_bytes_of_a_job_for_each(cells, loads, tmp_path):
    shards = [*SHARDS, SHARDS[0]]
    together = words(cells, tmp_path / "all", shards, OF)
    assert len(loads) == 1
    assert sum(loads[0]) == sum(told.count(b"\n") for told in together)
    apart = [words(cells, tmp_path / "each", [one], [name])[0] for one, name in zip(shards, OF, strict=True)]
    assert together == apart
    assert len(loads) == 4
    queries = []
    for one, name in zip(shards, OF, strict=True):
        files = {key: paths[0] for key, paths in files_of(cells, [one], [name]).items()}
        queries.append(str(tmp_path / f"{name}{one}.jsonl"))
        make_queries.run_shard(
            **files, shifted=files["regions"].replace(".parquet", ".shifted.parquet"), output=queries[-1],
            unasked=str(tmp_path / "u.parquet"),
            model_answers=[str(tmp_path / f"all/{name}/{one}.told.jsonl")],
            **queries_options(name, engine="vllm"),
        )  # fmt: skip
    loads.clear()
    judged = verdicts(cells, tmp_path / "judged", shards, OF, queries)
    assert len(loads) == 1
    apart = [
        verdicts(cells, tmp_path / "apart", [one], [name], [path])
        for one, name, path in zip(shards, OF, queries, strict=True)
    ]
    assert judged == [one[at] for at in range(len(WAYS)) for one in apart]


def test_a_job_that_was_cut_off_asks_for_the_rest_alone(cells, loads, tmp_path, monkeypatch):
    whole = words(cells, tmp_path / "whole", list(SHARDS), OF[:2])
    monkeypatch.setattr(asking, "IMAGES_PER_BATCH", 2)
    honest = client.TRANSPORTS["stand_in"]

    def breaking(options, how):
        ask = honest(options, how)

        def generate(questions, attempt):
            if len(loads[-1]) == 2:
                raise KeyboardInterrupt
            return ask(questions, attempt)

        return generate

    monkeypatch.setitem(client.TRANSPORTS, "stand_in", breaking)
    with pytest.raises(KeyboardInterrupt):
        words(cells, tmp_path / "cut", list(SHARDS), OF[:2])
    monkeypatch.setitem(client.TRANSPORTS, "stand_in", honest)
    assert words(cells, tmp_path / "cut", list(SHARDS), OF[:2]) == whole
    assert sum(loads[1]) + sum(loads[2]) == sum(loads[0])
    before = len(loads)
    assert words(cells, tmp_path / "cut", list(SHARDS), OF[:2]) == whole
    assert len(loads) == before  # nothing is left to ask, so nothing is loaded


def test_all_that_is_sent_makes_the_key_of_a_question():
    plain = [{"role": "user", "content": "a"}]
    keys = {
        question_key(question)
        for question in (
            Question(plain, None), Question(plain, {"type": "object"}), Question(plain, None, seed=1),
            Question([{"role": "system", "content": "a"}], None), Question([{"role": "user", "content": "b"}], None),
        )
    }  # fmt: skip
    assert len(keys) == 5
    assert question_key(Question(plain, None)) == question_key(Question(plain, None, lambda answer: "wrong"))


@pytest.mark.parametrize(("transport", "jobs"), [("offline", (1, 1)), ("server", (4, 8))])
@pytest.mark.slow
def test_the_plan_has_one_job_for_a_model_in_the_job(tmp_path, transport, jobs):
    llm = {"model": "nobody/nothing"}
    sets = {"cells": {"kind": "cells", "domain": "nuclei"}, "more": {"kind": "cells", "domain": "nuclei"}}
    verification = {"judge": "vllm", "mode": "both", "same_model": True, "llm": llm}
    medground = {
        "sources": {"sets": sets, "cells": 4, "shards": 2}, "queries": {"engine": "vllm", "llm": llm},
        "verification": verification,
    }  # fmt: skip
    settings = write_settings(tmp_path, {"medground": medground, "llm": {"transport": transport}}) / "mine.yaml"
    with Planner(ROOT) as planner:
        planned = planner.jobs(tmp_path, settings, "--", "medground_verification")
    names = [job.rule for job in planned]
    assert (names.count("medground_queries_told"), names.count("medground_verification_told")) == jobs


def test_the_answers_of_several_shards_lie_above_their_folders(cells, loads, tmp_path):
    words(cells, tmp_path / "q", list(SHARDS), OF[:2])
    words(cells, tmp_path / "q", [SHARDS[0]], [OF[0]])
    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob(f"{asking.ANSWERS_FOLDER}/*"))
    assert kept == ["q/answers/all", "q/cells/answers/00.told"]
