"""Answers on disk: one load for all shards, the bytes of a job for each, and a job that goes on where it stopped."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cxr.base.errors import StoreError
from cxr.base.tables import write_table
from cxr.language.reports.llm import structure_shards
from cxr.llm import answer_cache, client

OPTIONS = structure_shards.StructuringOptions(
    key="reports.llm.structuring", transport="stand_in", model="language_model:answer", revision="", context=16384,
    max_tokens=2000, dtype="auto", temperature=0.0, retries=1, retry_temperature=0.5, seed=1, sections="tolerant",
    section_overrides=False, scrub=False, max_characters=20_000,
)  # fmt: skip
REPORTS = ("Small left effusion.", "Right lower lobe opacity.", "The heart is enlarged.", "No effusion.", "Mild edema.")
SHARDS = {"00": (0, 1, 2), "01": (2, 3), "02": (4, 0)}
"""Numbers of the reports of each shard; two texts are in two shards."""


@pytest.fixture
def cohorts(tmp_path) -> list[str]:
    paths = []
    for shard, numbers in SHARDS.items():
        rows = [
            {"image_id": f"i{shard}-{n}", "study_id": f"s{shard}-{n}", "subject_id": "p", "rank": 0}
            | {"findings": REPORTS[n], "impression": None, "report_path": None}
            for n in numbers
        ]
        paths.append(str(tmp_path / f"{shard}.parquet"))
        write_table(paths[-1], pl.DataFrame(rows, schema_overrides={"impression": pl.String, "report_path": pl.String}))
    return paths


EXECUTION = {
    "gpus": 0, "gpu_memory": 0.9, "server": "", "mapping_server": "", "requests": 1, "remote_ok": False,
}  # fmt: skip


def asked(folder: Path, cohorts: list[str], at_once: int = 100, code: str = "c", options=OPTIONS) -> list[bytes]:
    outputs = [str(folder / f"{Path(path).stem}.jsonl") for path in cohorts]
    options = replace(options, asking=code)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answer_cache, "MAX_LINES", at_once)
        structure_shards.run(cohort=cohorts, output=outputs, options=options, execution=EXECUTION)
    return [Path(path).read_bytes() for path in outputs]


def test_one_load_serves_all_shards_with_the_bytes_of_a_job_for_each(cohorts, loads, tmp_path):
    together = asked(tmp_path / "all", cohorts, at_once=2)
    assert loads == [[2, 2, 1]]  # five distinct texts
    apart = []
    for path in cohorts:
        output = tmp_path / "each" / Path(path).with_suffix(".jsonl").name
        structure_shards.run(cohort=path, output=str(output), options=OPTIONS, execution=EXECUTION)
        apart.append(output.read_bytes())
    assert together == apart
    assert [len(told.splitlines()) for told in together] == [3, 2, 2]
    assert loads[1:] == [[3], [2], [2]]


def test_a_job_that_was_cut_off_goes_on_where_it_stopped(cohorts, loads, tmp_path, monkeypatch):
    whole = asked(tmp_path / "whole", cohorts)
    honest = client.TRANSPORTS["stand_in"]

    def cut(options, execution):
        generate = honest(options, execution)

        def cut_generate(questions, attempt):
            if len(loads[-1]) == 2:
                raise KeyboardInterrupt
            return generate(questions, attempt)

        return cut_generate

    with monkeypatch.context() as patched:
        patched.setitem(client.TRANSPORTS, "stand_in", cut)
        with pytest.raises(KeyboardInterrupt):
            asked(tmp_path / "cut", cohorts, at_once=2)
    assert not list((tmp_path / "cut").glob("*.jsonl"))
    assert asked(tmp_path / "cut", cohorts, at_once=2) == whole
    assert loads == [[5], [2, 2], [1]]


def test_new_texts_alone_are_asked_for(cohorts, loads, tmp_path):
    asked(tmp_path / "out", cohorts[:2])
    assert asked(tmp_path / "out", cohorts)[2] == asked(tmp_path / "fresh", cohorts)[2]
    assert loads == [[4], [1], [5]]


@pytest.mark.parametrize("change", [{"code": "d"}, {"options": OPTIONS.__class__(**vars(OPTIONS) | {"seed": 2})}])
def test_answers_of_other_code_or_options_are_asked_again(cohorts, loads, tmp_path, caplog, change):
    asked(tmp_path / "out", cohorts)
    asked(tmp_path / "out", cohorts, **change)
    assert loads == [[5], [5]]
    assert "holds answers of another model, prompt or code: they are deleted" in caplog.text


def test_a_damaged_answer_is_one_sentence(cohorts, loads, tmp_path):
    asked(tmp_path / "out", cohorts)
    (path,) = (tmp_path / "out/answers/all").glob("answers-*.jsonl")
    path.write_text(path.read_text().replace("effusion", "infusion"))
    with pytest.raises(StoreError, match=r"answers-000000\.jsonl"):
        asked(tmp_path / "out", cohorts)
