"""Engine both: the rules read first, a language model reads what they hand over, and both must agree on a denial."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from test_denials_of_texts import denials_of, texts_of
from test_reports_clinical import READER

import language_model
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import LESIONS
from cxr.language.reports import compare_engines, read_reports, summarize_reports
from cxr.language.reports.llm import mapping, structure_shards, terms
from cxr.language.reports.summarize_reports import SummaryOptions
from cxr.llm.answer_cache import answer_digest
from cxr.llm.options import ModelOptions
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read

SETTINGS = stage_options(read({"reports": {"engine": "both"}}))
CORRECTED = "No left effusion. Mild edema. ADDENDUM: the above should read right."
FORM = "Consolidation: No\nPleural effusion: Yes\nEdema: 3/7 points, as before"
REPORTS = {
    "understood": ("No pleural effusion. Left basal opacity.", None),
    "word": ("Left basal opacity. There is some blorp in the left base.", "unknown_words"),
    "denial": ("Is the edema gone? No. No pleural effusion.", "denial_not_understood"),
    "degree": ("No large effusion. No edema.", "denial_not_understood"),
    "corrected": (CORRECTED, "corrected_report"),
    "form": (FORM, "unread_form"),
    "foreign": ("Sin derrame pleural ni edema pulmonar. Corazón de tamaño normal.", "not_english"),
    "empty": ("Report to follow.", None),
}


def row_of(text: str) -> dict:
    return {"study_id": "s1", "subject_id": "p1", "findings": text, "impression": None}


def reader_with(model: Callable[[list[str]], list[dict]]):
    """Return a reader of the engine both, whose model gives these tuples."""
    return replace(READER, structures=READER.structures | {"vllm": model})


def denial(lesion: str, **changes) -> dict:
    """Return the model's denial of a lesion type in the first sentence."""
    (item,) = language_model.RULES([f"No {lesion}."])
    return item | changes


# ---- what is handed over ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_what_the_rules_refuse_or_leave_open_is_handed_over(name):
    text, reason = REPORTS[name]
    handed_over = read_reports.find_hand_over(row_of(text), READER)
    assert (handed_over.reason if handed_over else None) == reason


def test_the_model_reads_all_sections_of_a_text_that_the_rules_refuse():
    handed_over = read_reports.find_hand_over(row_of(CORRECTED), READER)
    assert "the above should read right." in " ".join(handed_over.section.sentences)
    assert handed_over.section.second_section is None


def test_each_line_of_a_form_is_a_sentence():
    handed_over = read_reports.find_hand_over(row_of(FORM), READER)
    assert handed_over.section.sentences == FORM.splitlines()


def test_identifiers_are_removed_from_a_text_that_the_rules_refuse():
    reader = replace(READER, options=replace(READER.options, scrub=True))
    line = "Referring physician: Dr. Anna Kowalczyk"
    for text in (f"{FORM}\n{line}", f'{{"effusion": yes, "text": "{line}"'):
        handed_over = read_reports.find_hand_over(row_of(text), reader)
        assert handed_over.reason == "unread_form"
        assert "Kowalczyk" not in handed_over.section.text


def test_a_report_that_the_rules_understand_is_not_sent():
    def refuse(sentences):
        raise AssertionError(sentences)

    line = read_reports.study_line(row_of(REPORTS["understood"][0]), reader_with(refuse))
    assert (line["engine"], line["handed_over"]) == ("rules", None)


# ---- both must agree on a denial -------------------------------------------------------------------------------------


def deny_all(sentences: list[str]) -> list[dict]:
    return [denial(lesion) for lesion in LESIONS]


def turn_round(sentences: list[str]) -> list[dict]:
    """Deny everywhere what the rules affirm, and affirm what they deny."""
    opposite = {"positive": "negative", "negative": "positive"}
    return [
        item | {"presence": opposite[item["presence"]], "location": None, "labels": [], "block": [], "denies": True}
        for item in language_model.RULES(sentences)
    ]


MODELS = {"as the rules": language_model.RULES, "silent": lambda sentences: [], "all": deny_all, "round": turn_round}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("denials", ["explicit", "witnessed"])
def test_no_model_allows_a_denial_that_the_rules_alone_do_not(model, denials, request):
    """Of clinical texts; ``as the rules`` loses none of them either."""
    num_handed_over = num_denials = 0
    texts = [case.text for name in ("witness_read", "given") for case in texts_of(name, request)]
    for text in [*texts, *(text for text, _ in REPORTS.values())]:
        reading = denials_of(text, denials, reader_with(MODELS[model]))
        if reading is None or reading[1]["handed_over"] is None:
            continue
        num_handed_over += 1
        of_rules = denials_of(text, denials)
        for lesion, allowed in reading[0].items():
            bound = of_rules[0][lesion] if of_rules else None
            assert set(allowed.basic) <= set(bound.basic if bound else ())
            assert not allowed.global_ or (bound and bound.global_)
            num_denials += bool(allowed.basic or allowed.global_)
            if model == "as the rules" and bound:
                assert (allowed.basic, allowed.global_) == (bound.basic, bound.global_)
    assert num_handed_over > 40
    assert num_denials > 0 or model != "as the rules"


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ("No large edema. No effusion.", [denial("effusion")], True),
        ("No large edema. No effusion.", [], False),
        ("No large edema. No effusion.", [denial("edema")], False),
        ("No large edema. No right effusion.", [denial("effusion")], False),  # the model leaves out the place
        ("No large edema. No effusion.", [denial("effusion", certainty="tentative")], False),
        ("No large edema. No new effusion.", [denial("effusion")], False),
    ],
)
def test_an_explicit_denial_needs_both(text, model, expected):
    lesion = "effusion"
    allowed, _ = denials_of(text, "explicit", reader_with(lambda sentences: model))
    assert bool(allowed[lesion].basic or allowed[lesion].global_) == expected


def test_what_the_rules_affirm_only_blocks():
    text = "Left basal consolidation. There is some blorp in the left base."
    line = read_reports.study_line(row_of(text), reader_with(lambda sentences: []))
    assert line["tuples"] == []
    assert [item["lesion_type"] for item in line["other_tuples"]] == ["consolidation"]
    assert line["unknown_words"]


# ---- the stage -------------------------------------------------------------------------------------------------------


def answer_some(messages: list[dict], schema: dict) -> str:
    """Answer as the rules would, but give no JSON for an edema."""
    return "edema?" if "Is the edema gone" in messages[-1]["content"] else language_model.answer(messages, schema)


def run_stage(folder: Path, shards: list[list[str]], model: str) -> dict[str, bytes]:
    """Run the jobs of the engine both on the reports of each shard; return {study: its line} and the tables."""
    folder.mkdir()
    names = [f"{number:02}" for number in range(len(shards))]
    for name, studies in zip(names, shards, strict=True):
        rows = [row_of(REPORTS[study][0]) | {"study_id": study, "image_id": study, "rank": 0} for study in studies]
        types = {"impression": pl.String, "report_path": pl.String}
        table = pl.DataFrame([row | {"report_path": None} for row in rows], schema_overrides=types)
        write_table(folder / f"{name}.cohort.parquet", table)
    paths = {kind: [str(folder / f"{name}.{kind}") for name in names]
             for kind in ("cohort.parquet", "structured.jsonl", "jsonl", "excluded.parquet")}  # fmt: skip
    stand_in = {"transport": "stand_in", "model": model}
    execution = {"gpus": 0, "gpu_memory": 0.9, "server": "", "requests": 1, "remote_ok": False}
    structure_shards.run(
        cohort=paths["cohort.parquet"], output=paths["structured.jsonl"], execution=execution,
        options=structure_shards.StructuringOptions(**SETTINGS["structuring"] | stand_in),
    )  # fmt: skip
    places = {"terms": str(folder / "terms.jsonl"), "output": str(folder / "mapping.jsonl")}
    terms.collect_terms(structured=paths["structured.jsonl"], output=places["terms"])
    mapping.run(**places, options=ModelOptions(**SETTINGS["mapping"] | stand_in), execution=execution)
    for number in range(len(shards)):
        read_reports.run_shard(
            cohort=paths["cohort.parquet"][number], output=paths["jsonl"][number], attrs={},
            excluded=paths["excluded.parquet"][number], structured=paths["structured.jsonl"][number],
            mapping=places["output"], options=read_reports.ReportsOptions(**SETTINGS["reports"]),
        )  # fmt: skip
    tables = {name: str(folder / f"{name}.tsv") for name in ("words", "reading", "agreement", "disagreements")}
    summarize_reports.run(
        reports=paths["jsonl"], excluded=paths["excluded.parquet"], words=tables["words"], reading=tables["reading"],
        options=SummaryOptions(**SETTINGS["reports_read"]),
    )  # fmt: skip
    compare_engines.run(
        reports=paths["jsonl"], agreement=tables["agreement"], disagreements=tables["disagreements"],
        effusion_without_side="both_bases",
    )  # fmt: skip
    raw_lines = [line for path in paths["jsonl"] for line in Path(path).read_bytes().splitlines()]
    lines = {json.loads(line)["study_id"]: line for line in raw_lines}
    return lines | {name: Path(path).read_bytes() for name, path in tables.items()}


def test_the_model_is_asked_about_the_handed_over_alone_and_they_are_counted(tmp_path, loads, caplog):
    caplog.set_level("INFO")
    run_stage(tmp_path / "run", [list(REPORTS)], f"{__name__}:answer_some")
    assert loads[0][0] == sum(reason is not None for _, reason in REPORTS.values()) == 6
    lines = {line["study_id"]: line for line in read_lines(tmp_path / "run/00.jsonl")}
    reasons = {name: reason for name, (_, reason) in REPORTS.items()}
    assert {name: line["handed_over"] for name, line in lines.items()} == {
        name: reasons[name] for name in lines
    }  # fmt: skip
    assert {name for name, line in lines.items() if line["engine"] == "rules"} == {"understood"}
    excluded = dict(read_table(tmp_path / "run/00.excluded.parquet").select("study_id", "detail").iter_rows())
    assert excluded["denial"] == "handed over to the language model (denial_not_understood): not JSON"
    table = read_table(tmp_path / "run/reading.tsv")
    assert table["handed_over"].sum() == 6
    assert "the rules hand over 6 of 8 reports" in caplog.text
    assert "the rules handed over 6 of 8 reports to the language model, 750 per 1,000" in caplog.text
    # both have read `word` and `degree`; the rules have read no other that was handed over
    assert read_table(tmp_path / "run/agreement.tsv")["studies"].to_list() == [2] * len(LESIONS)


def test_the_bytes_do_not_depend_on_the_shards(tmp_path, loads):
    names = list(REPORTS)
    whole = run_stage(tmp_path / "whole", [names], "language_model:answer")
    parts = run_stage(tmp_path / "parts", [names[:3], names[3:5], names[5:]], "language_model:answer")
    assert whole == parts


def test_a_change_of_the_rules_asks_only_about_new_texts(tmp_path, loads):
    options = structure_shards.StructuringOptions(**SETTINGS["structuring"])
    changed = replace(options, rules_first=SETTINGS["reports"] | {"max_findings": 5}, scrub=False)
    assert answer_digest(changed, "") == answer_digest(options, "")
    assert answer_digest(replace(options, seed=options.seed + 1), "") != answer_digest(options, "")
