"""Unknown words: their detection, their table, and the denials that they block; the share of unusable reports."""

import json
import logging
from dataclasses import replace

import polars as pl
import pytest

import language_model
from cxr.base.columns import schema
from cxr.base.tables import read_table, write_excluded, write_lines
from cxr.ils.dataset.negatives import gather_evidence
from cxr.language.reports import outcome_summary, sentences, summarize_reports, vocabulary
from cxr.language.reports.forms import PROSE
from cxr.reporting.page.sections import reading_outcomes
from dataset_cases import line, may, said, study, tuple_
from report_outcomes import outcomes

VOCABULARY = vocabulary.load_vocabulary()


def unknown(text: str) -> list[dict]:
    return VOCABULARY.unknown([text[a:b] for a, b in sentences.split_sentences(text)])


def test_words_that_are_known_and_words_that_are_not():
    text = (
        "The lungs are blurfly. Zorbing of the heart, 12 mm, XXXX, ___. Discussed with Dr. Anna Kowalczyk of Wroclawia."
    )
    assert unknown(text) == [
        {"word": "blurfly", "sentence_index": 1, "finding": True},
        {"word": "zorbing", "sentence_index": 2, "finding": True},
        {"word": "wroclawia", "sentence_index": 3, "finding": False},
    ]
    twice = "Discussed as gludge. Gludge in the left lung."
    assert unknown(twice) == [{"word": "gludge", "sentence_index": 1, "finding": True}]
    assert unknown("No, non-displaced, reaccumulating, unremarkably, subpulmonic effusions aren't atelectactic.") == []


COMMON = """
    acinar apical azygos basilar bilaterally blunting bronchiectatic bronchogram bronchovascular cardiophrenic carinal
    centrilobular cephalization contralateral costophrenic cuffing endobronchial hemidiaphragm hilar honeycombing
    interlobular ipsilateral kerley lingular loculated lordotic meniscus mesothelioma miliary paratracheal
    pneumoconiosis retrocardiac silhouetting subpleural syndesmophytes tracheobronchial tramline visceral
"""


def test_common_words_of_radiology_are_known():
    assert [word for word in COMMON.split() if not VOCABULARY.is_known(word)] == []


SIGNS = {
    "Meniscus at the left base.": ("meniscus", "effusion"),
    "Juxtaphrenic peaking on the right.": ("volume loss", "atelectasis"),
    "Air bronchograms in the left lower lobe.": ("air bronchogram", "consolidation"),
    "Tree in bud changes on the right.": ("interstitial markings", "opacity"),
}


@pytest.mark.parametrize("text", SIGNS)
def test_a_sign_of_a_lesion_forbids_to_deny_it(text):
    """A sign is not the lesion, but if it is affirmed, silence never denies the lesion."""
    (found,) = language_model.RULES([text])
    entity, lesion = SIGNS[text]
    assert (found["entity"], found["presence"], found["lesion_type"]) == (entity, "positive", None)
    assert found["related"] == lesion


def test_the_share_is_of_distinct_words():
    text = ["Blurf blurf in the lung."]
    assert VOCABULARY.share(text, VOCABULARY.unknown(text)) == 0.25
    assert VOCABULARY.share(["12 3 4."], []) == 0.0
    talk = ["Discussed with the gludge."]
    assert VOCABULARY.share(talk, VOCABULARY.unknown(talk)) == 0.0


def test_given_english_texts_are_nearly_all_known(shared):
    reports = [json.loads(row) for row in (shared / "fixtures/openi_reports.jsonl").open(encoding="utf-8")]
    texts = [report["findings"] or report["impression"] for report in reports]
    strange = [unknown(text) for text in texts]
    assert sum(map(bool, strange)) <= 0.03 * len(texts)
    shares = [
        VOCABULARY.share([text[a:b] for a, b in sentences.split_sentences(text)], words)
        for text, words in zip(texts, strange, strict=True)
    ]
    assert sum(share > 0.05 for share in shares) <= 2  # of 1,868: whose silence counts for nothing


def lines_of(*studies: tuple[str, list[str], list[dict], bool]) -> list[dict]:
    return [
        {"study_id": name, "subject_id": name, "sentences": texts, "tuples": [{}] * found, "unknown_words": words,
         "written": [PROSE], "handed_over": None}
        for name, texts, words, found in studies
    ]  # fmt: skip


def word(name: str, index: int, finding: bool = True) -> dict:
    return {"word": name, "sentence_index": index, "finding": finding}


@pytest.mark.parametrize("withheld", [False, True])
def test_the_tables_of_all_shards(tmp_path, withheld, caplog):
    shards = [
        lines_of(
            ("s3", ["Ok.", "A  glim\nglow."], [word("glim", 2), word("glow", 2)], True),
            ("s4", ["Glow told by Ann."], [word("glow", 1, finding=False)], False),
        ),
        lines_of(("s1", ["Glow here."], [word("glow", 1)], True)),
    ]
    excluded = [
        [("i1", "s5", "not_english"), ("i2", "s5", "not_english"), ("i3", "s6", "missing_report")],
        [("i4", "s2", "not_english")],
    ]
    paths = []
    for number, (rows, lost) in enumerate(zip(shards, excluded, strict=True)):
        write_lines(tmp_path / f"{number}.jsonl", rows, checked=True)
        lost = [
            {"image_id": image, "study_id": name, "stage": "reports", "reason": reason, "detail": ""}
            for image, name, reason in lost
        ]
        write_excluded(tmp_path / f"{number}.parquet", lost)
        paths.append(str(tmp_path / str(number)))
    out = {"words": str(tmp_path / "w.tsv"), "reading": str(tmp_path / "r.tsv")}
    options = summarize_reports.SummaryOptions(engine="rules", withheld=withheld, least_subjects=1)
    with caplog.at_level(logging.INFO, "cxr"):
        summarize_reports.run(
            reports=[f"{path}.jsonl" for path in paths], excluded=[f"{path}.parquet" for path in paths],
            **out, options=options,
        )  # fmt: skip
    texts = ["withheld"] * 2 if withheld else ["Glow here.", "A glim glow."]
    assert read_table(out["words"]).rows() == [("glow", 3, 2, texts[0]), ("glim", 1, 1, texts[1])]
    assert read_table(out["reading"]).select("outcome", "studies", "example_study").rows() == [
        ("findings", 2, "s1"), ("no_findings", 1, "s4"), ("not_english", 2, "s2"), ("missing_report", 1, "s6"),
    ]  # fmt: skip
    first, second = caplog.records
    assert first.levelname == "WARNING"  # 3 of 6 are above a tenth
    assert "reports: 3 of 6 studies have no usable report: 2 not_english" in first.message
    assert second.message == "reports: 2 words were not understood (see unknown_words.tsv in the same folder)"
    assert outcome_summary.read_summary(tmp_path / "r.tsv").startswith("reports: 3 of 6 studies have no usable report")


FORM_TEXTS = [
    ("Consolidation: no\nPleural effusion: yes", None),
    ("Consolidation: no\n[x] Pneumothorax", None),
    ("[x] Pleural effusion", None),
    ("Consolidation: no\nPleural effusion: purple", None),
    ("1. A moderate left effusion is present.\n2. A small opacity is seen.\n3. Small effusion seen.", None),
    ("Normal heart.\\nSmall left effusion.", None),
]


@pytest.mark.parametrize("num_shards", [1, 3])
def test_reports_that_are_forms_are_counted(tmp_path, num_shards, caplog):
    folders = [tmp_path / str(number) for number in range(num_shards)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        outcomes(folder, FORM_TEXTS[number::num_shards])
    reading = tmp_path / "reading.tsv"
    caplog.clear()
    with caplog.at_level(logging.INFO, "cxr"):
        summarize_reports.run(
            reports=[f"{folder}/o.jsonl" for folder in folders], excluded=[f"{folder}/e.parquet" for folder in folders],
            words=str(tmp_path / "words.tsv"), reading=str(reading),
            options=summarize_reports.SummaryOptions(engine="rules", withheld=False, least_subjects=1),
        )  # fmt: skip
    rows = read_table(reading)
    assert rows["studies"].sum() == len(FORM_TEXTS)
    kinds = "label-value lines 2, tick list 2, escaped text 1; 1 not wholly read, so not used"
    sentence = f"5 of 6 reports are forms ({kinds})"
    assert f"reports: {sentence}" in caplog.messages
    assert reading_outcomes(rows)["forms"] == sentence


def test_nothing_to_say_is_not_said(tmp_path):
    assert outcome_summary.read_summary(tmp_path / "none.tsv") == ""
    rows = [{"outcome": outcome, "form": "", "studies": 2} for outcome in ("findings", "no_findings")]
    assert outcome_summary.summarize_forms(rows) == outcome_summary.summarize_forms([]) == ""
    assert outcome_summary.summarize_outcomes(rows) == ""
    assert outcome_summary.summarize_outcomes([]) == ""


@pytest.mark.parametrize(("lost", "level"), [(1, "INFO"), (2, "WARNING")])
def test_a_shard_warns_where_over_a_tenth_give_nothing(tmp_path, caplog, lost, level):
    texts = [("Small left effusion.", None)] * (10 - lost) + [("Sin edema pulmonar.", None)] * lost
    with caplog.at_level(logging.INFO, "cxr"):
        outcomes(tmp_path, texts)
    (record,) = [record for record in caplog.records if "without a usable report" in record.message]
    assert record.levelname == level
    assert record.message == (
        f"reports: {10 - lost} studies with findings, 0 read without a finding, {lost} without a usable report "
        f"(not_english {lost})"
    )


def test_more_findings_than_a_report_can_have(tmp_path):
    text = "Small left effusion. " * 5
    lines, reasons = outcomes(tmp_path, [(text, None)], max_findings=4)
    assert (lines, reasons) == ({}, {"0": ("too_long", "5 findings; reports.max_findings is 4")})
    lines, reasons = outcomes(tmp_path, [(text, None)], max_findings=5)
    assert len(lines["0"]["tuples"]) == 5


# ---- what silence is worth -------------------------------------------------------------------------------------------


def test_silence_of_a_section_that_was_not_understood_denies_nothing():
    known = replace(said(), understood=False)
    for lesion in ("pneumonia", "edema", "effusion", "opacity", "cardiomegaly"):
        assert may(lesion, known).reason == "not_understood"
    denied = replace(known, negated={"effusion": said().empty, "cardiomegaly": said().empty},
                     everywhere=frozenset(("effusion", "cardiomegaly")))  # fmt: skip
    assert may("effusion", denied).global_
    assert may("cardiomegaly", denied).global_
    assert may("edema", denied).reason == "not_understood"
    placed = replace(denied, everywhere=frozenset())
    assert may("effusion", placed).basic
    assert not may("effusion", placed).global_  # elsewhere it is not mentioned


@pytest.mark.parametrize(("share", "understood_"), [(0.0, True), (0.05, True), (0.0501, False)])
def test_how_many_unknown_words_are_too_many_is_a_setting(share, understood_):
    report = line([tuple_("effusion")], unknown_share=share)
    assert gather_evidence(study(), report, 0.05).understood is understood_
    assert gather_evidence(study(), report, 0.06).understood


def test_words_come_from_the_stage(tmp_path):
    lines, _ = outcomes(tmp_path, [("The hrz is vergr. No effusion.", None)])
    assert lines["0"]["unknown_words"] == [word("hrz", 1), word("vergr", 1)]
    assert lines["0"]["unknown_share"] == round(2 / 6, 4)


def test_other_languages_words_are_not_listed(tmp_path):
    """A report that was not read has no line and thus no unknown words."""
    lines, _ = outcomes(tmp_path, [("Sin derrame pleural.", None)])
    assert lines == {}
    empty = pl.DataFrame(schema=schema(summarize_reports.WORDS))
    assert empty.columns == ["word", "studies", "hiding", "example"]
