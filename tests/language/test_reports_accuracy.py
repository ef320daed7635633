"""The accuracy command of the reports: numbers known by hand, floors, folds, messages, the error browser."""

import json
import re
import sys
from html.parser import HTMLParser
from math import isnan, nan
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cxr.base.vocabulary import LESIONS
from cxr.language.reports import read_reports
from cxr.workflow import params, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import reports_accuracy as accuracy  # noqa: E402
import reports_floors as floors  # noqa: E402
import reports_marks as marks  # noqa: E402
import reports_measures as measures  # noqa: E402
import reports_scores as scores  # noqa: E402
from reports_labelled import Case, Report  # noqa: E402
from reports_measures import Measure  # noqa: E402

STRUCTURE = accuracy.load_engine()


def placed(lesion: str, sides: list[str], zones: list[str]) -> list[dict]:
    return [{"lesion": lesion, "sides": sides, "zone_family": zones}]


EFFUSION = {
    "findings": "Small left pleural effusion.",
    "lesions": ["effusion"],
    "gold": placed("effusion", ["left"], ["lower"]),
}
MISSED = {"findings": "No pleural effusion.", "lesions": ["effusion"], "gold": placed("effusion", ["left"], ["lower"])}
EXTRA = {"findings": "Right upper lobe opacity.", "lesions": []}
WEAK = {"impression": "Possible pneumonia.", "lesions": ["pneumonia"]}
ELSEWHERE = {
    "findings": "Left basilar atelectasis.",
    "lesions": ["atelectasis"],
    "gold": placed("atelectasis", ["right"], ["lower"]),
}
CLEAR = {"findings": "The lungs are clear.", "impression": None, "lesions": []}
LINES = [CLEAR, EFFUSION, MISSED, EXTRA, WEAK, ELSEWHERE]
"""Found, with weak hedges dropped: two of four lesions, and one that is not there; one of two sides; a place of a
lesion that was missed is not scored."""

RIGHT = {
    "id": "c1",
    "report": "No pneumothorax.",
    "expected": [{"entity": "pneumothorax", "presence": "negative", "sentence_index": 1}],
}
WRONG = {"id": "c2", "report": "Left effusion.", "expected": [{"entity": "effusion", "labels15": ["right lung base"]}]}


def measured(lines: list[dict], rounds: int = 50) -> measures.Accuracy:
    reports = [Report.model_validate(line) for line in lines]
    return measures.measured(reports, [accuracy.tuples_of(STRUCTURE, report.text) for report in reports], rounds)


def write(path: Path, lines: list[dict]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_known_by_hand():
    found = measured(LINES)
    values = {way: {name: measure.value for name, measure in row.items()} for way, row in found.ways.items()}
    assert values == {
        "weak dropped": {"P": 2 / 3, "R": 2 / 4, "micro-F1": 4 / 7, "macro-F1": (2 / 3 + 1) / 4},
        "all": {"P": 3 / 4, "R": 3 / 4, "micro-F1": 6 / 8, "macro-F1": (2 / 3 + 1 + 1) / 4},
        "definite only": {"P": 2 / 3, "R": 2 / 4, "micro-F1": 4 / 7, "macro-F1": (2 / 3 + 1) / 4},
    }
    row = found.lesions["effusion"]
    assert [row[name].value for name in ("P", "R", "F1")] == [1, 1 / 2, 2 / 3]
    assert {lesion: row["F1"].cases for lesion, row in found.lesions.items() if row["F1"].cases} == {
        "effusion": 2, "pneumonia": 1, "atelectasis": 1,
    }  # fmt: skip
    assert isnan(found.lesions["edema"]["F1"].value)
    assert found.lesions["opacity"]["F1"].value == 0
    assert (found.places["laterality"].value, found.places["laterality"].cases) == (1 / 2, 2)
    assert (found.places["zone_family"].value, found.places["zone_family"].cases) == (1, 2)
    assert found.place_counts[LESIONS.index("atelectasis")].tolist() == [[0, 1], [1, 1]]


def test_a_place_that_people_implied_is_not_scored():
    implied = ELSEWHERE | {"gold": [ELSEWHERE["gold"][0] | {"side_implied": True}]}
    assert measured([implied]).places["laterality"].cases == 0
    assert measured([ELSEWHERE]).places["laterality"].cases == 1


def test_intervals():
    recall = measured([EFFUSION, MISSED], rounds=400).ways["all"]["R"]
    assert recall == Measure(0.5, 0, 1, 2)  # each drawing holds both, or one of them twice: 1/2, 1/4 and 1/4 of them
    one_text = [line | {"text_group": "same"} for line in (EFFUSION, MISSED)]
    assert measured(one_text).ways["all"]["R"] == Measure(0.5, 0.5, 0.5, 2)
    assert measured([EFFUSION, EFFUSION | {"findings": "Right effusion."}]).ways["all"]["R"] == Measure(1, 1, 1, 2)
    none = measured([CLEAR]).ways["all"]["R"]
    assert isnan(none.value)
    assert isnan(none.low)


def test_sums_draw_whole_groups():
    drawn = measures.sums(np.array([[1], [10], [100]]), ["a", "b", "a"], 60).drawn[:, 0]
    assert set(drawn.tolist()) == {111, 202, 20}


def test_equal_texts_share_a_fold():
    groups = [str(number) for number in range(10)]
    fold = measures.fold_of(groups + groups, 5)
    assert fold[:10].tolist() == fold[10:].tolist()
    assert np.bincount(fold).tolist() == [4] * 5
    assert measures.fold_of(groups[::-1], 5).tolist() == fold[:10][::-1].tolist()


def test_sentences_by_any_accepted_reading():
    def right(case: dict) -> bool:
        found = Case.model_validate(case)
        return scores.case_right(found, accuracy.tuples_of(STRUCTURE, found.report))

    expected = {"entity": "effusion", "lesion": "effusion", "labels15": ["left lung base"], "certainty": "definitive"}
    case = {"report": "Left effusion.", "expected": [expected]}
    assert right(case)
    assert not right(case | {"expected": []})
    assert not right(case | {"expected": [expected, expected]})
    assert right(case | {"expected": [], "alternatives": [[expected]]})
    assert not right(case | {"expected": [expected | {"certainty": "tentative"}]})
    assert right(case | {"expected": [expected | {"certainty": "tentative", "certainty_free": True}]})
    assert not right(case | {"expected": [expected | {"category17": None}]})
    assert right(case | {"expected": [expected | {"labels15": [], "labels15_alt": ["left lung base"]}]})
    assert not right(case | {"expected": [expected | {"predicted_lesion_type": ["edema"]}]})
    assert right(case | {"expected": [expected | {"predicted_lesion_type": None}]})


# ---- floors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "word", "by_interval"),
    [
        (Measure(0.95, 0.90, 0.97, 29), "met", True),
        (Measure(0.95, 0.90, 0.959, 29), "not met", True),
        (Measure(0.95, 0.90, 0.97, 30), "not met", False),
        (Measure(0.96, 0.90, 0.97, 30), "met", False),
        (Measure(nan, nan, nan, 0), "no cases", True),
        (Measure(0.0, 0.0, 0.0, 0), "no cases", True),
    ],
)
def test_floor(measure, word, by_interval):
    assert floors.verdict("x", measure, 0.96, few=30)[3:] == (word, by_interval)


def test_floors_of_all_reports_know_no_exception_for_few():
    (first, *_) = floors.verdicts({"micro-F1": Measure(0.95, 0.9, 1.0, 3)}, dict.fromkeys(LESIONS, Measure(1, 1, 1, 1)),
                                  floors.read())  # fmt: skip
    assert first[3:] == ("not met", False)


def test_the_command_holds_every_floor_against_a_measure(tmp_path, capsys):
    cases = write(tmp_path / "cases.jsonl", [RIGHT, WRONG])
    accuracy.main([write(tmp_path / "reports.jsonl", LINES), "--cases", cases, "--rounds", "20"])
    printed = capsys.readouterr().out
    table = floors.read()
    assert set(table["lesions"]) == set(LESIONS)
    verdicts = {
        re.split(r" {2,}", line)[0]: line for line in printed[printed.index("\nfloor") :].splitlines()[2:] if line
    }
    assert set(verdicts) == {*table["whole"], *(f"F1 {lesion}" for lesion in LESIONS)}
    assert re.search(r"micro-F1 +0\.960 +0\.571 +\S+ +4  not met$", verdicts["micro-F1"])
    assert re.search(r"0\.930 +1\.000  1\.000-1\.000 +2  met$", verdicts["zone_family"])
    assert re.search(r"0\.930 +0\.500 .* 2  not met$", verdicts["sentences"])
    assert verdicts["F1 edema"].endswith("  no cases")
    assert verdicts["F1 pneumonia"].endswith("  not met (fewer than 30 cases: the interval counts)")
    assert "sentences wholly right 1 of 2 = 0.500" in printed
    assert "weak dropped   P 0.667  R 0.500  micro-F1 0.571" in printed
    assert f"atelectasis       1  {'1.000 ' * 3}1.000-1.000  0/1        1/1\n" in printed


def test_folds_are_printed_with_their_spread(tmp_path, capsys):
    reports = write(tmp_path / "reports.jsonl", [EFFUSION, MISSED])
    accuracy.main([reports, "--folds", "2", "--rounds", "1"])
    assert "micro-F1 0.500 ± 0.707 over 2 folds" in capsys.readouterr().out
    accuracy.main([reports, "--folds", "1", "--rounds", "1"])
    assert "fold" not in capsys.readouterr().out


def test_halves_part_the_reports(tmp_path, capsys):
    reports = write(tmp_path / "reports.jsonl", LINES)
    numbers = []
    for half in ("dev", "check"):
        accuracy.main([reports, "--half", half, "--rounds", "1"])
        numbers.append(int(re.search(r"^(\d+) reports, ", capsys.readouterr().out, re.M).group(1)))
    assert sum(numbers) == len(LINES)


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"findings": "secret"}', r"line 2: lesions is missing\."),
        ('{"lesions": []}', r"line 2: findings and impression are both missing\."),
        ('{"findings": ["secret"], "lesions": []}', r"line 2: findings: Input should be a valid string\."),
        ('{"findings": "", "lesions": ["secret"]}', r"line 2: lesions\.0: Input should be 'cardiomegaly', .*"),
        ('{"findings": "", "lesions": [], "gold": [{"sides": []}]}', r"line 2: gold\.0\.lesion is missing\."),
        ('{"findings": "secret', r"line 2: Invalid JSON: .* at column \d+\."),
        ("[1]", r"line 2: Input should be an object\."),
    ],
)
def test_a_line_that_is_none_is_one_sentence(tmp_path, line, message):
    path = tmp_path / "reports.jsonl"
    path.write_text(f"{json.dumps(EFFUSION)}\n{line}\n", encoding="utf-8")
    said = stopped([str(path)])
    assert re.fullmatch(re.escape(f"{path}, ") + message, said)
    assert "secret" not in said


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    path = tmp_path / "x.jsonl"
    assert stopped([str(path)]) == f"{path} cannot be read: No such file or directory."
    path.write_text("\n \n", encoding="utf-8")
    assert stopped([str(path)]) == f"{path} holds no line."
    path.write_bytes(b"\xff\xfe")
    assert stopped([str(path)]) == f"{path} is not UTF-8 text."
    path.write_text('{"report": "Left effusion."}', encoding="utf-8")
    reports = write(tmp_path / "reports.jsonl", [EFFUSION])
    assert stopped([reports, "--cases", str(path)]) == f"{path}, line 1: expected is missing."
    assert (
        stopped([reports, "--browser", str(tmp_path), "--rounds", "1"])
        == f"{tmp_path} cannot be written: Is a directory."
    )


def stopped(arguments: list[str]) -> str:
    """Return the message with which the command stops."""
    with pytest.raises(SystemExit) as caught:
        accuracy.main(arguments)
    assert "\n" not in caught.value.code
    return caught.value.code


def test_reports_alone_suffice(tmp_path, capsys):
    lines = [{key: line[key] for key in ("findings", "lesions")} for line in (EFFUSION, ELSEWHERE)]
    accuracy.main([write(tmp_path / "reports.jsonl", lines), "--browser", str(tmp_path / "page.html"), "--errors", "9"])
    printed = capsys.readouterr().out
    assert "weak dropped   P 1.000  R 1.000  micro-F1 1.000 (1.000-1.000)" in printed
    assert "laterality exact - (-) n=0" in printed
    assert "missed" not in printed


# ---- the error browser -----------------------------------------------------------------------------------------------


class Seen(HTMLParser):
    """Contents of a page: attributes, text and marks (decision, letter, text) of each article, in order."""

    def __init__(self, page: str):
        super().__init__()
        self.articles: list[dict] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "article":
            self.articles.append({"data": attributes, "text": "", "marks": [], "cells": []})
        if tag in ("div", "mark", "td"):
            self._inside.append(attributes.get("class", "") if tag == "div" else tag)
        if tag == "mark" and "text" in self._inside:
            self.articles[-1]["marks"].append((attributes["class"], attributes.get("data-letter"), ""))

    def handle_endtag(self, tag):
        if tag in ("div", "mark", "td"):
            self._inside.pop()

    def handle_data(self, data):
        if "text" in self._inside:
            self.articles[-1]["text"] += data
            if self._inside[-1] == "mark":
                decision, letter, before = self.articles[-1]["marks"].pop()
                self.articles[-1]["marks"].append((decision, letter, before + data))
        elif "td" in self._inside:
            self.articles[-1]["cells"].append(data)


def page_of(tmp_path: Path, lines: list[dict], *more: str) -> str:
    path = tmp_path / "page.html"
    accuracy.main([write(tmp_path / "reports.jsonl", lines), "--browser", str(path), "--rounds", "1", *more])
    return path.read_text(encoding="utf-8")


def test_every_decision_has_its_colour_on_its_span(tmp_path):
    text = (
        "Small left pleural effusion. Opacity in the right base, likely atelectasis. Possible pneumonia. No edema. "
        "No new consolidation. Probable cardiomegaly."
    )
    (article,) = Seen(page_of(tmp_path, [{"findings": text, "impression": "Left effusion.", "lesions": []}])).articles
    assert article["text"] == f"{text}\nLeft effusion."
    assert article["marks"] == [
        ("definite", "A1", "pleural effusion"),
        ("definite", "A2", "Opacity"),
        ("explains", "E", "atelectasis"),
        ("weak", "W3", "pneumonia"),
        ("denied", "N4", "edema"),
        ("no_new", "O5", "consolidation"),
        ("strong", "S6", "cardiomegaly"),
        ("definite", "A7", "effusion"),
    ]
    assert {"A1", "pleural effusion", "left lung base", "atelectasis (strong)"} <= set(article["cells"])


def test_a_disease_with_a_tuple_of_its_own_explains_nothing(tmp_path):
    text = "Left basal opacity, likely atelectasis; no new atelectasis on the right."
    (article,) = Seen(page_of(tmp_path, [{"findings": text, "lesions": []}])).articles
    assert article["marks"] == [
        ("definite", "A1", "opacity"),
        ("explains", "E", "atelectasis"),
        ("no_new", "O2", "atelectasis"),
    ]


def test_texts_are_data(tmp_path):
    text = "<script>alert(1)</script> Left effusion & \"edema\" <b title='x'>\x00\x1b."
    page = page_of(tmp_path, [EFFUSION | {"findings": text, "uid": "<i>7</i>"}])
    assert "<script>alert" not in page
    assert "<b " not in page
    assert "<i>" not in page
    (article,) = Seen(page).articles
    assert article["text"] == text.replace("\x00", "␀").replace("\x1b", "␛") + "\n"


def test_the_page_loads_nothing(tmp_path):
    page = page_of(tmp_path, LINES, "--cases", write(tmp_path / "cases.jsonl", [WRONG]))
    assert re.findall(r"\b(?:src|href|action)=|url\(|@import|https?:|fetch\(", page) == []
    assert "default-src 'none'" in page


def test_errors_come_first_and_can_be_filtered(tmp_path):
    articles = Seen(page_of(tmp_path, LINES)).articles
    assert [article["data"] for article in articles] == [
        {"data-all": "any effusion", "data-missed": "any effusion", "data-errors": "any effusion"},
        {"data-all": "any opacity", "data-extra": "any opacity", "data-errors": "any opacity"},
        {"data-all": "any pneumonia", "data-missed": "any pneumonia", "data-errors": "any pneumonia"},
        {"data-all": "any atelectasis", "data-place": "any atelectasis", "data-errors": "any atelectasis"},
        {"data-all": "any "},
        {"data-all": "any effusion"},
    ]
    shown = page_of(tmp_path, LINES, "--show", "1")
    assert len(Seen(shown).articles) == 1
    assert "6 reports, 4 with an error, errors first; the page holds the first 1." in shown


def test_sentences_stand_beside_what_is_expected(tmp_path):
    page = page_of(tmp_path, [CLEAR], "--cases", write(tmp_path / "cases.jsonl", [RIGHT, WRONG]))
    _, wrong, right = Seen(page).articles
    assert (wrong["text"], right["text"]) == ("Left effusion.", "No pneumothorax.")
    assert "right lung base" in wrong["cells"]
    assert wrong["data"] == {"data-all": "any effusion", "data-errors": "any effusion"}
    assert right["data"] == {"data-all": "any "}


def test_a_run_can_be_browsed(tmp_path):
    rows = {
        "study_id": ["s1", "s2"],
        "subject_id": ["p1", "p2"],
        "image_id": ["i1", "i2"],
        "rank": [0, 0],
        "report_path": [None, None],
    }
    rows |= {"findings": ["Possible left effusion.", "No edema."], "impression": ["Edema.", None]}
    pl.DataFrame(rows).write_parquet(tmp_path / "cohort.parquet")
    chosen = read_reports.ReportsOptions(**params.stage_options(settings.Settings())["reports"])
    (tmp_path / "reports").mkdir()
    read_reports.run_shard(
        cohort=str(tmp_path / "cohort.parquet"), output=str(tmp_path / "reports" / "00.jsonl"),
        excluded=str(tmp_path / "reports" / "00.excluded.parquet"), options=chosen, attrs={},
    )  # fmt: skip
    accuracy.main(["--results", str(tmp_path / "reports"), "--browser", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first, second = Seen(page).articles
    assert first["marks"] == [("weak", "W1", "effusion")]
    assert first["data"] == {"data-all": "any effusion", "data-weak": "any effusion"}
    assert "edema" in first["cells"]
    assert second["marks"] == [("denied", "N1", "edema")]
    assert second["data"] == {"data-all": "any edema", "data-denied": "any edema"}


def test_what_no_run_made_cannot_be_browsed(tmp_path):
    page = str(tmp_path / "page.html")
    path = tmp_path / "x.jsonl"
    path.write_text('{"study_id": "s1", "section_text": "secret"}\n', encoding="utf-8")
    assert stopped(["--results", str(path), "--browser", page]) == f"{path}, line 1: not written by the reports stage."
    (tmp_path / "empty").mkdir()
    assert "holds no line" in stopped(["--results", str(tmp_path / "empty"), "--browser", page])
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["a.jsonl", "--results", "b"], ["--results", "b"], ["a.jsonl", "--folds", "0"]]
)
def test_arguments_that_do_not_go_together(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        accuracy.main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_piece_under_two_marks_shows_the_shorter():
    outer, inner = marks.Mark(0, 6, "definite", "", "1"), marks.Mark(2, 4, "denied", "", "2")
    assert marks.pieces_of("abcdefg", [outer, inner]) == [
        ("ab", outer, True),
        ("cd", inner, True),
        ("ef", outer, False),
        ("g", None, False),
    ]
