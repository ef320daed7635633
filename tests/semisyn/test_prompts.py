"""Mined phrases: sentences of one certain finding, in listed words alone, of several patients; nothing of a patient."""

from pathlib import Path

import polars as pl
import pytest
import yaml

from annotation_files import write_ms_cxr
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.tables import read_table, write_lines, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.findings.catalogue import read_catalogue
from cxr.semisyn.prompts import mine_prompts
from cxr.semisyn.prompts.mine_prompts import Mention, Vocabulary, pool_phrases
from cxr.workflow import settings
from cxr.workflow.settings import SettingsError

WORDS = mine_prompts.read_vocabulary(read_catalogue())


@pytest.mark.parametrize(
    ("sentence", "phrase"),
    [
        ("There is a new small left pleural effusion.", "Left pleural effusion."),
        ("Moderate-to-severe pulmonary edema, worsened.", "Pulmonary edema."),
        ("Patchy opacity is present at the right lung base.", "Patchy opacity at the right lung base."),
        ("Linear atelectasis and/or collapse in the left lobe", "Linear atelectasis and collapse in the left lobe."),
        ("The effusion on the left", None),
        ("The edema is the same in the", None),
        ("The right the effusion of the", "Right effusion."),
        # anything else says something of this patient
        ("Left effusion as seen on 3/14 by Dr. Smith.", None),
        ("Effusion after lobectomy.", None),
        ("Right effusion, 12 mm.", None),
        ("There is.", None),
    ],
)  # fmt: skip
def test_a_sentence_becomes_a_phrase_or_nothing(sentence, phrase):
    assert WORDS.phrase(sentence) == phrase


def test_no_word_of_a_phrase_is_outside_the_lists():
    only = Vocabulary(frozenset({"small"}), frozenset({"left", "effusion"}))
    assert only.phrase("Small left effusion") == "Left effusion."
    assert only.phrase("Small left pleural effusion") is None


def entity(name: str, sentence: int, **other: object) -> dict:
    told = {"entity": name, "lesion_type": name if name in FINDINGS and name != "pneumothorax" else None}
    told |= {"sentence_index": sentence, "presence": "positive", "certainty": "definitive", "hedge": "definite"}
    return told | other


def line(patient: str, sentences: list[str], tuples: list[dict], **other: object) -> dict:
    told = {"study_id": f"s{patient}", "subject_id": patient, "section_name": "findings", "sentences": sentences}
    return told | {"tuples": tuples, "other_tuples": []} | other


LINES = [
    line("p0", ["Small left effusion.", "No edema."], [entity("effusion", 1), entity("edema", 2, presence="negative")]),
    line("p1", ["Left effusion."], [entity("effusion", 1)], section_name="impression"),
    line("p1", ["Left effusion."], [entity("effusion", 1)]),
    line("p2", ["Right apical pneumothorax."], [entity("pneumothorax", 1)]),
    line("p3", ["Right apical pneumothorax."], [entity("pneumothorax", 1)]),
    line("p4", ["Left effusion.", "Edema."], [entity("effusion", 1), entity("edema", 2)]),
    line("p5", ["Left effusion."], [entity("effusion", 1)], other_tuples=[entity("edema", 1)]),
    line("p6", ["Possible edema."], [entity("edema", 1, hedge="weak", certainty="tentative")]),
    line("p7", ["Edema with scoliosis."], [entity("edema", 1), entity("scoliosis", 1)]),
    line("p8", ["Edema, Mr Jones."], [entity("edema", 1)]),
    line("p9", ["Right effusion."], [entity("effusion", 1)]),
    line("p9", ["Left effusion."], [entity("effusion", 1)], section_name="history"),
]


def test_reports_of_one_finding_are_mined():
    mentions, excluded = mine_prompts.mine_reports([one for one in LINES if one["section_name"] != "history"], WORDS)
    assert mentions == [
        Mention("effusion", "Left effusion.", "p0"), Mention("effusion", "Left effusion.", "p1"),
        Mention("effusion", "Left effusion.", "p1"), Mention("pneumothorax", "Right apical pneumothorax.", "p2"),
        Mention("pneumothorax", "Right apical pneumothorax.", "p3"), Mention("effusion", "Right effusion.", "p9"),
    ]  # fmt: skip
    assert dict(excluded) == {
        ("effusion", mine_prompts.SEVERAL): 2, ("edema", mine_prompts.SEVERAL): 1, ("edema", mine_prompts.UNSURE): 1,
        ("edema", mine_prompts.SHARED): 1, ("edema", mine_prompts.WORDS): 1,
    }  # fmt: skip


def test_both_pools_are_equally_likely_and_a_phrase_of_one_patient_is_none():
    reports = [Mention("edema", "Edema.", f"p{at}") for at in range(6)] + [
        Mention("edema", "Interstitial edema.", "p0")
    ] * 5
    reference = [Mention("edema", "Edema.", "q0"), *(Mention("edema", "Pulmonary edema.", f"q{at}") for at in range(3))]
    found = {one.phrase: one for one in pool_phrases(reports, reference, 2)}
    assert set(found) == {"Edema.", "Pulmonary edema."}
    assert found["Edema."].weight == pytest.approx(0.5 * 6 / 6 + 0.5 * 1 / 4)
    assert found["Pulmonary edema."].weight == pytest.approx(0.5 * 3 / 4)
    assert (found["Edema."].reports, found["Edema."].reference, found["Edema."].patients) == (6, 1, 7)
    # where one pool tells nothing, the other has all of the weight
    assert [one.weight for one in pool_phrases(reports, [], 2)] == [1.0]


def mined(folder: Path, monkeypatch, fewest: int = 1, most: int = 40) -> dict[str, Path]:
    monkeypatch.setattr(mine_prompts, "MIN_PHRASES", fewest)
    monkeypatch.setattr(mine_prompts, "MAX_PHRASES", most)
    write_lines(folder / "00.jsonl", LINES[:6])
    write_lines(folder / "01.jsonl", LINES[6:])
    write_table(
        folder / "images.parquet", pl.DataFrame({"image_id": ["i0", "i1", "i2"], "subject_id": ["q0", "q1", "q2"]})
    )
    boxes = [
        Annotation("i0", "Pleural Effusion", (1, 1, 9, 9), phrase="small right effusion"),
        Annotation("i1", "Pleural Effusion", (1, 1, 9, 9), phrase="Right effusion."),
        Annotation("i2", "Pleural Effusion", (1, 1, 9, 9), phrase="right effusion"),
        Annotation("i2", "Edema", (1, 1, 9, 9), phrase="edema"),
    ]
    write_ms_cxr(folder / "phrases.csv", Annotations(boxes, {"i0", "i1", "i2"}))
    told = {"name": "people", "format": "ms_cxr", "path": str(folder / "phrases.csv"), "image_id": "{stem}"}
    told |= {"role": "test", "classes": {}}
    asked = {"least_patients": 2, "findings": list(FINDINGS), "reference": told}
    out = {name: folder / name for name in ("prompts.yaml", "prompts.tsv", "counts.tsv")}
    mine_prompts.run(
        reports=[str(folder / "00.jsonl"), str(folder / "01.jsonl")], images=str(folder / "images.parquet"),
        prompts=str(out["prompts.yaml"]), table=str(out["prompts.tsv"]), counts=str(out["counts.tsv"]),
        annotations=told["path"], **asked,
    )  # fmt: skip
    return out


def test_the_file_is_a_users_findings_file_and_says_that_it_is_to_be_read(tmp_path, monkeypatch):
    out = mined(tmp_path, monkeypatch)
    text = out["prompts.yaml"].read_text()
    assert text.startswith("# Phrases mined from reports. READ EACH OF THEM before use")
    assert yaml.safe_load(text)["findings"] == {
        "effusion": {"prompts": {"Right effusion.": 0.625, "Left effusion.": 0.375}},
        "pneumothorax": {"prompts": {"Right apical pneumothorax.": 1.0}},
    }
    catalogue = read_catalogue(out["prompts.yaml"])
    assert catalogue.findings["effusion"].prompts == {"Right effusion.": 0.625, "Left effusion.": 0.375}
    assert catalogue.findings["edema"].prompts == read_catalogue().findings["edema"].prompts
    rows = read_table(out["prompts.tsv"])
    (one,) = rows.filter(pl.col("phrase") == "Right apical pneumothorax.").to_dicts()
    assert (one["side"], one["origin"], one["patients"]) == ("right", "mined", 2)
    assert set(rows.filter(pl.col("finding") == "edema")["origin"]) == {"embedded"}
    everything = "".join(path.read_text() for path in out.values())
    assert not any(word in everything for word in ("Jones", "p8", "scoliosis"))


def test_every_sentence_is_counted(tmp_path, monkeypatch):
    counts = read_table(mined(tmp_path, monkeypatch)["counts.tsv"])
    told = {(row["finding"], row["outcome"]): row["sentences"] for row in counts.to_dicts()}
    assert told["effusion", "mined"] == 3 + 3
    assert told["effusion", "several findings in the report"] == 2 + 1
    # 8 sentences of reports and 3 phrases say effusion, 4 and one edema
    assert sum(number for (name, _), number in told.items() if name == "effusion") == 6 + 3 + 0
    assert sum(number for (name, _), number in told.items() if name == "edema") == 4 + 1


def test_few_phrases_leave_the_embedded_ones(tmp_path, monkeypatch):
    out = mined(tmp_path, monkeypatch, fewest=2)
    assert set(yaml.safe_load(out["prompts.yaml"].read_text())["findings"]) == {"effusion"}
    findings = yaml.safe_load(mined(tmp_path, monkeypatch, most=1)["prompts.yaml"].read_text())["findings"]
    assert len(findings["effusion"]["prompts"]) == 1


def test_a_reference_that_is_not_there_is_told():
    with pytest.raises(SettingsError, match=r"prompts\.reference is 'mscxr', but semisyn\.references has none"):
        settings.read({"semisyn": {"prompts": {"reference": "mscxr"}}}, [])
