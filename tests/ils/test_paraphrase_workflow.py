"""Paraphrases through the workflow: made by name, trained on, asked, scored, and re-run only by related changes."""

import json
import shutil
from pathlib import Path

import pytest

import language_model
from conftest import SLICE, snakemake, write_settings
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import PERSONAS, SPLITS
from cxr.ils.paraphrase.wording_checks import parse_wording
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.templates import parse_instruction
from declared_tables import tables_of
from table_columns import TABLES
from training_runs import SIZES

RECIPE = {"init": "random", "sizes": SIZES, "epochs": 2, "batch": 4, "micro_batch": 4, "warmup": 2}
RUNS = {"default": {}, "reworded": {"paraphrases": True}}
ASKED = SLICE | {
    "training": {"lite": RECIPE, "runs": RUNS},
    "inference": {"paraphrases": True, "max_new_tokens": 24, "size": 128},
    "evaluation": {"size": 128},
    "replicates": 100,
}


@pytest.fixture(scope="module")
def evaluated(workflow_run, tmp_path_factory) -> Path:
    """A copy of the slice's run, trained with and without paraphrases, both asked by all personas."""
    copy = tmp_path_factory.mktemp("paraphrased") / "run"
    shutil.copytree(workflow_run, copy, symlinks=True)
    write_settings(copy, ASKED)
    snakemake(copy, "evaluation")
    return copy


def pairs(run: Path, *splits: str) -> list[dict]:
    return [line for split in splits for line in read_lines(run / f"results/dataset/default/{split}.jsonl")]


@pytest.mark.slow
def test_every_instruction_of_the_cohort_is_worded_once(evaluated):
    folder = evaluated / "results/paraphrase/default"
    texts = sorted({line["instruction"] for line in pairs(evaluated, *SPLITS)})
    assert [line["instruction"] for line in read_lines(folder / "instructions.jsonl")] == texts
    lines = list(read_lines(folder / "wordings.jsonl"))
    assert [(line["instruction"], line["persona"]) for line in lines] == [
        (text, persona) for text in texts for persona in PERSONAS
    ]
    wordings = [wording for line in lines for wording in line["wordings"]]
    assert len(set(wordings)) == len(wordings) == 9 * len(texts)
    assert all(
        parse_wording(wording) == parse_instruction(line["instruction"])
        for line in lines
        for wording in line["wordings"]
    )
    counts = read_table(folder / "counts.tsv")
    assert counts["reworded"].sum() == 3 * len(texts)
    assert counts["plain_only"].sum() == 0
    log = (evaluated / "logs/paraphrase/default/instructions.log").read_text()
    assert f"{len(texts)} distinct instructions, 0 of them not of Table 2" in log


@pytest.mark.slow
def test_the_tables_have_their_declared_columns(evaluated):
    found = tables_of(evaluated)
    assert not list(filter(None, found.values()))
    stages = ("evaluation", "paraphrase", "training")
    assert {path for path in TABLES if path.split("/")[1] in stages} <= found.keys()


@pytest.mark.slow
def test_the_training_with_paraphrases_knows_their_words(evaluated):
    plain, reworded = (Tokens.load(evaluated / f"results/training/{run}/model") for run in RUNS)
    for words, knows in (("Please mark where you see the", True), ("Generate a binary mask", True)):
        for tokens, learnt in ((plain, False), (reworded, knows)):
            ids = tokens.tokenizer(words, add_special_tokens=False).input_ids
            assert (tokens.tokenizer.unk_token_id not in ids) == learnt
    tables = [read_table(evaluated / f"results/training/{run}/updates.tsv") for run in RUNS]
    assert tables[0]["pairs"].to_list() == tables[1]["pairs"].to_list()
    assert tables[0]["positives"].to_list() == tables[1]["positives"].to_list()  # the same pairs, in other words
    assert tables[0]["loss"].to_list() != tables[1]["loss"].to_list()


@pytest.mark.slow
def test_each_persona_asks_every_pair_in_its_words(evaluated):
    lines = pairs(evaluated, "test")
    wordings = {(line["instruction"], line["persona"]): line["wordings"] for line in
                read_lines(evaluated / "results/paraphrase/default/wordings.jsonl")}  # fmt: skip
    for run in RUNS:
        for persona in PERSONAS:
            stem = evaluated / f"results/inference/{run}/test.{persona}"
            said = [json.loads(text) for text in stem.with_name(f"test.{persona}.jsonl").read_text().splitlines()]
            assert [entry["pair_id"] for entry in said] == [line["pair_id"] for line in lines]
            for line, entry in zip(lines, said, strict=True):
                assert entry["instruction"] in wordings[line["instruction"], persona]
            with Shard(stem.with_name(f"test.{persona}.h5"), key="pair_id") as masks:
                assert masks.ids == [entry["mask"] for entry in said if entry["mask"]]


@pytest.mark.slow
def test_the_tables_have_a_row_for_each_persona_and_say_what_changes(evaluated):
    folder = evaluated / "results/evaluation"
    comparison = read_table(folder / "comparison.tsv").filter(source="ours", lesion="total")
    assert comparison["run"].to_list() == [*RUNS, *(f"{run}, {persona}" for run in RUNS for persona in PERSONAS)]
    giou = dict(comparison.select("run", "giou").iter_rows())
    changes = read_table(folder / "paraphrases.tsv")
    assert changes["persona"].unique(maintain_order=True).to_list() == [*PERSONAS, "all personas"]
    for run in RUNS:
        for persona in PERSONAS:
            (row,) = changes.filter(run=run, persona=persona, lesion="total", measure="giou").iter_rows(named=True)
            assert (row["plain"], row["reworded"]) == (giou[run], giou[f"{run}, {persona}"])
            assert row["change_low"] <= row["change"] <= row["change_high"]
            assert row["change"] == pytest.approx(row["reworded"] - row["plain"], abs=0.011)
            counts = read_table(folder / run / persona / "counts.tsv")
            assert counts["number"][0] == len(pairs(evaluated, "test"))


@pytest.mark.slow
def test_what_runs_again(evaluated, dry_run):
    assert dry_run(evaluated, "evaluation") == {}
    merged = ASKED | {"paraphrase": {"llm": {"temperature": 0.3}}}
    write_settings(evaluated, merged)
    assert dry_run(evaluated, "evaluation") == {}  # the engine rules asks no model
    write_settings(evaluated, ASKED | {"paraphrase": {"per_persona": 2}})
    assert dry_run(evaluated, "evaluation") == {
        "paraphrase_wordings": 1, "training_run": 1, "inference_run": 1, "evaluation_run": 1,
        "inference_paraphrased": 6, "evaluation_persona": 6, "evaluation_comparison": 1, "evaluation_paraphrases": 1,
        "evaluation": 1,
    }  # fmt: skip
    write_settings(evaluated, ASKED | {"inference": ASKED["inference"] | {"paraphrases": False}})
    assert dry_run(evaluated, "evaluation").keys() == {"evaluation_comparison", "evaluation"}
    write_settings(evaluated, ASKED)
    assert dry_run(evaluated, "evaluation") == {}


@pytest.mark.slow
def test_a_served_model_words_the_cohort_and_how_it_is_run_re_runs_nothing(workflow_run, tmp_path, dry_run):
    run = tmp_path / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    model = {"model": language_model.MODEL, "revision": ""}
    paraphrase = {"paraphrase": {"engine": "vllm", "llm": model}}
    with language_model.serving() as (url, seen):
        write_settings(run, SLICE | paraphrase | {"llm": {"transport": "server", "server": url}})
        snakemake(run, "paraphrase")
    lines = list(read_lines(run / "results/paraphrase/default/wordings.jsonl"))
    assert len(seen) == len(lines)  # each distinct instruction once for each persona
    assert {line["made_by"] for line in lines} == {language_model.MODEL}
    assert all(len(line["wordings"]) == 3 for line in lines)
    elsewhere = {"llm": {"transport": "server", "server": "http://elsewhere/v1", "requests": 2}}
    write_settings(run, SLICE | paraphrase | elsewhere)
    assert dry_run(run, "paraphrase") == {}
    warmer = {"paraphrase": {"engine": "vllm", "llm": model | {"temperature": 0.4}}}
    write_settings(run, SLICE | warmer | elsewhere)
    assert dry_run(run, "paraphrase") == {"paraphrase_wordings": 1, "paraphrase": 1}


def test_a_bare_run_words_nothing(workflow_run, dry_run):
    assert not (workflow_run / "results/paraphrase").exists()
    assert dry_run(workflow_run) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"per_persona": 4}, "paraphrase: per_persona is 4, but the engine rules has 3 wordings for each persona"),
        ({"personas": ["layperson", "layperson"]}, "paraphrase: personas lists a persona twice: remove one of them"),
        ({"personas": []}, "paraphrase.personas"),
        ({"personas": ["poet"]}, "paraphrase.personas"),
        (
            {"engine": "vllm", "llm": {"max_tokens": 99999}},
            "the configuration: paraphrase.llm.max_tokens is 99999, but llm.context",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(given, words, tmp_path):
    write_settings(tmp_path, SLICE | {"paraphrase": given})
    done = snakemake(tmp_path, "paraphrase", "--dry-run", check=False)
    assert done.returncode
    assert f"cxr-ils: {words}" in done.stderr + done.stdout
