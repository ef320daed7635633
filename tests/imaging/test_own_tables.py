"""Ids, paths and dates as spreadsheets and other systems write them: one form each, or a sentence with the lines."""

import re
import unicodedata
from pathlib import Path

import pytest

from cohort_runs import COLUMNS, Result, of, run_cohort, write_csv
from cxr.base.errors import UserError
from cxr.imaging.cohort.dates import sortable_times

XRAY = of()
ACCENTED = "M\u00fcller"
DECOMPOSED = unicodedata.normalize("NFD", ACCENTED)


def run(folder: Path, rows: list[tuple], columns: tuple = COLUMNS, **changes: object) -> Result:
    for number in range(1, 7):
        (folder / f"{number}.dcm").write_bytes(XRAY)
    manifest = write_csv(folder / "m.csv", columns, rows)
    return run_cohort(folder, manifest=manifest, shards=1, **changes)


def subjects(folder: Path, ids: list[str]) -> list[str]:
    """Return the subjects of images 1, 2 … whose manifest writes them as ``ids``."""
    rows = [(name, f"s{n}", f"i{n}", f"{n}.dcm", "") for n, name in enumerate(ids, 1)]
    return run(folder, rows).accepted.sort("image_id")["subject_id"].to_list()


# --------------------------------------------------------------------------------------------- identifiers


@pytest.mark.parametrize(
    "sign", ["\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u200e", "\u202a", "\ufe0f", "\u00a0",
             "\u202f", "\u3000", " ", "\t"],
)  # fmt: skip
def test_an_invisible_sign_makes_no_second_patient(tmp_path, sign):
    assert subjects(tmp_path, ["PAT001", f"PAT001{sign}", f"{sign}PAT001"]) == ["PAT001"] * 3


def test_signs_inside_and_two_forms_of_an_accent_make_no_second_patient(tmp_path):
    assert subjects(tmp_path, ["PAT001", "PAT\u200b001", ACCENTED, DECOMPOSED]) == ["PAT001"] * 2 + [ACCENTED] * 2
    assert subjects(tmp_path, ["A 1", "A\u00a01"]) == ["A 1"] * 2


def test_an_id_of_invisible_signs_alone_is_empty(tmp_path):
    result = run(tmp_path, [("\u200b\ufeff", "s", "i", "1.dcm", ""), ("p", "t", "j", "2.dcm", "")])
    assert result.details == {"i": "line 2: subject_id is empty"}


def test_one_person_is_never_in_two_splits(tmp_path):
    """Without cleaning, 60 persons written in two ways each lie in two splits now and then."""
    rows = [
        (f"P{n}{sign}", f"s{n}{k}", f"i{n}{k}", f"{n}{k}.dcm", "")
        for n in range(60)
        for k, sign in enumerate(("", "\u200b"))
    ]
    for row in rows:
        (tmp_path / row[3]).write_bytes(XRAY)
    result = run(tmp_path, rows, split={"train": 40, "validate": 30, "test": 30})
    assert result.accepted["subject_id"].n_unique() == 60
    splits = result.accepted.group_by("subject_id").n_unique()["split"]
    assert splits.to_list() == [1] * 60


def test_lists_and_tables_name_images_in_any_form(tmp_path):
    rows = [("p1", "s1", DECOMPOSED, "1.dcm", ""), ("p2", "s2", "b", "2.dcm", ""), ("p3", "s3", "c", "3.dcm", "")]
    exclude = write_csv(tmp_path / "x.csv", ("image_id",), [(ACCENTED,)])
    headless = write_csv(tmp_path / "y.csv", ("b\u200b",), [("\ufeff",)])
    write_csv(tmp_path / "q/mask_number.csv", ("image_id", "label"), [("c\u00a0", "0")])
    tables = {"chexstruct": str(tmp_path / "q")}
    assert run(tmp_path, rows, exclude=exclude, **tables).reasons == {ACCENTED: "listed", "c": "failed_quality_table"}
    assert run(tmp_path, rows, exclude=headless).reasons == {"b": "listed"}


@pytest.mark.parametrize(
    ("ids", "lines", "words"),
    [
        (["1234567890123450000", "2234567890123450000"], "lines 2, 3", "has kept 15 digits"),
        (["1234567890123450000"] * 2 + ["17"], "line 2", "has kept 15 digits"),
        (["1234567890123450", "2234567890123460"], "lines 2, 3", "has kept 15 digits"),
        (["123", "123.0"], "lines 2, 3", "occurs both with and without .0"),
        (["123.00", "x", "123"], "lines 2, 4", "occurs both with and without .0"),
        (["Mar-45", "13-45"], "line 2", "has changed some identifiers to dates"),
        (["Jan-45", "Feb-45"], "lines 2, 3", "has changed some identifiers to dates"),
    ],
)
def test_ids_that_a_program_has_changed_together_stop_the_run(tmp_path, ids, lines, words):
    with pytest.raises(UserError) as error:
        subjects(tmp_path, ids)
    sentence = str(error.value)
    assert sentence.startswith(f"cohort.manifest: {tmp_path / 'm.csv'}, {lines}: in subject_id, ")
    assert words in sentence
    assert "save the column as text" in sentence
    assert not set(ids) & set(re.split(r"[ ,:]", sentence))


@pytest.mark.parametrize(
    "ids",
    [
        ["1234567890123456789", "1234567890123450000"],  # one id is whole: nothing was cut
        ["1234567890123450", "p"],  # one id of 16 digits may end in 0
        ["123.0", "124.0"],
        ["1.2.840.10008.1.0", "1.2.840.10008.1"],
        ["MAR-05", "JUN-07"],
        ["Mar-05", "Mar-06"],  # a ward's own numbers
        ["12e5", "3E7"],
        ["#12", "12-SEP"],
        ["007", "7"],
    ],
)
def test_ids_that_only_look_changed_are_left_alone(tmp_path, ids):
    assert subjects(tmp_path, ids) == ids


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.23457E+18", "shortened to the form 1.2E+10"),
        ("1,23E+11", "shortened to the form 1.2E+10"),
        ("1.23457e+18", "shortened to the form 1.2E+10"),
        ("01-Mar", "was changed to a date by a spreadsheet"),
        ("3-mars", "was changed to a date by a spreadsheet"),
        ("01. Mrz", "was changed to a date by a spreadsheet"),
        ("2024-03-01 00:00:00", "was changed to a date by a spreadsheet"),
        ("#########", "holds the spreadsheet's error #########"),
        ("#WERT!", "holds the spreadsheet's error #WERT!"),
        ("#REF!", "holds the spreadsheet's error #REF!"),
    ],
)
def test_an_id_that_a_spreadsheet_has_spoilt_excludes_its_row(tmp_path, text, words):
    result = run(tmp_path, [(text, "s1", "i1", "1.dcm", ""), ("p2", "s2", "i2", "2.dcm", "")])
    result.check_conserved(2)
    assert result.reasons == {"i1": "bad_row"}
    assert result.details["i1"].startswith("line 2: subject_id ")
    assert words in result.details["i1"]


def test_a_text_that_excel_has_cut_is_named(tmp_path):
    columns = ("subject_id", "study_id", "image_id", "image_path", "findings")
    texts = ["Clear. " * 5000, "Clear. " * 4681, "Clear. " * 4000]
    rows = [(f"p{n}", f"s{n}", f"i{n}", f"{n}.dcm", text[:32_767]) for n, text in enumerate(texts, 1)]
    result = run(tmp_path, rows, columns)
    assert len(rows[1][4]) == 32_767
    assert result.accepted["image_id"].to_list() == ["i3"]
    assert {detail.partition(": ")[2] for detail in result.details.values()} == {
        "findings has exactly 32,767 characters, the limit of Excel: give the full text in report_path"
    }


# --------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("dicom/1.dcm", "dicom\\1.dcm"),
        ("dicom/1.dcm", ".\\dicom\\1.dcm"),
        ("dicom/1.dcm", "DICOM/1.DCM"),
        (f"{DECOMPOSED}.dcm", f"{ACCENTED}.dcm"),
        (f"{ACCENTED}.dcm", f"{DECOMPOSED}.dcm"),
        (f"Klinik S\u00fcd/{DECOMPOSED} 1.DCM", f"Klinik S\u00fcd\\{ACCENTED.lower()} 1.dcm"),
        ("a b/1.dcm", "a%20b/1.dcm"),
        ("a%20b/1.dcm", "a b/1.dcm"),
        ("x/1.dcm", "x/1.dcm\u200b"),
        ("x/1.dcm", "file:x/1.dcm"),
    ],
)
def test_a_path_of_another_system_leads_to_its_file(tmp_path, caplog, file, text):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(XRAY)
    result = run(tmp_path, [("p", "s", "i", text, ""), ("p2", "s2", "i2", "2.dcm", "")])
    assert result.reasons == {}
    assert result.accepted.sort("image_id")["path"][0] == str(tmp_path / file)
    assert "cohort.manifest: image_path of line 2 differs from its file in " in caplog.text


def test_a_url_of_a_file_leads_to_it(tmp_path):
    (tmp_path / "a b.dcm").write_bytes(XRAY)
    assert run(tmp_path, [("p", "s", "i", (tmp_path / "a b.dcm").as_uri(), "")]).reasons == {}


def test_of_several_files_that_fit_none_is_taken(tmp_path):
    for name in ("a.dcm", "A.dcm"):
        (tmp_path / name).write_bytes(XRAY)
    result = run(tmp_path, [("p", "s", "i", "A.DCM", ""), ("p2", "s2", "j", "a.dcm", "")])
    assert result.reasons == {"i": "missing_file"}
    assert result.details["i"] == "2 files exist that differ only in case"


def test_a_file_is_not_lent_to_a_second_row_that_differs_in_case(tmp_path):
    """Another person's image would become this one's."""
    (tmp_path / "A.dcm").write_bytes(XRAY)
    (tmp_path / "B.DCM").write_bytes(XRAY)
    rows = [("p1", "s1", "i1", "A.dcm", ""), ("p2", "s2", "i2", "a.dcm", ""), ("p3", "s3", "i3", "b.dcm", ""),
            ("p4", "s4", "i4", "b.Dcm", ""), ("p5", "s5", "i5", "2.DCM", "")]  # fmt: skip
    result = run(tmp_path, rows)
    assert result.reasons == dict.fromkeys(("i2", "i3", "i4"), "missing_file")
    assert set(result.details.values()) == {
        "a file exists whose path differs only in case, but another row of the table names that file"
    }


def test_a_path_that_leads_nowhere_says_why(tmp_path):
    rows = [
        ("p", "s", "i", "D:\\films\\1.dcm", ""),
        ("p2", "s2", "j", "films/1.dcm", ""),
        ("p3", "s3", "k", "3.dcm", ""),
    ]
    result = run(tmp_path, rows)
    assert result.details == {
        "i": "a path of another computer's drive or share: write it relative to the table's folder",
        "j": "its folder does not exist",
    }


def test_two_spellings_of_one_file_are_one_file(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/1.dcm").write_bytes(XRAY)
    rows = [("p", "s", "a", "d\\1.dcm", ""), ("p", "s", "b", "d/1.dcm", ""), ("q", "t", "c", "2.dcm", "")]
    assert run(tmp_path, rows).reasons == {"b": "duplicate_image"}


def test_reports_are_found_by_other_spellings_too(tmp_path, caplog):
    (tmp_path / "reports").mkdir()
    for name in ("S1.txt", "S2.txt"):
        (tmp_path / "reports" / name).write_text("FINDINGS: Clear.")
    rows = [("p", "s", "a", "1.dcm", "reports\\S1.txt"), ("p", "s", "b", "2.dcm", "reports/S1.txt"),
            ("q", "t", "c", "3.dcm", "Reports/s2.TXT"), ("r", "u", "d", "4.dcm", "none/s2.txt")]  # fmt: skip
    accepted = run(tmp_path, rows).accepted.sort("image_id")
    paths = [str(tmp_path / "reports" / name) for name in ("S1.txt", "S1.txt", "S2.txt")]
    assert accepted["report_path"].to_list() == [*paths, None]
    assert accepted["report_missing"].to_list() == [False, False, False, True]
    assert "report_path of line 5 points to no file: its folder does not exist" in caplog.text
    assert "different reports" not in caplog.text


def test_a_folder_is_listed_once(tmp_path, monkeypatch):
    from cxr.base import user_paths

    calls = []
    listed = user_paths.os.listdir
    monkeypatch.setattr(user_paths.os, "listdir", lambda folder: calls.append(folder) or listed(folder))
    for number in range(1, 7):
        (tmp_path / f"{number}.dcm").write_bytes(XRAY)
    finder = user_paths.PathFinder(tmp_path)
    assert [Path(finder.find(f"{number}.DCM").path).name for number in range(1, 7)] == [f"{n}.dcm" for n in range(1, 7)]
    assert len(calls) == 1


# --------------------------------------------------------------------------------------------------- dates

DATED = (*COLUMNS, "acquired")


def first_of_a_study(folder: Path, early: str, late: str, *more_dates: str) -> str:
    """Return which of two images of a study is tried first; further studies have the dates ``more_dates``."""
    rows = [("p", "s", "a", "1.dcm", "", late), ("p", "s", "b", "2.dcm", "", early)]
    rows += [(f"q{n}", f"t{n}", f"c{n}", f"{n}.dcm", "", date) for n, date in enumerate(more_dates, 3)]
    accepted = run(folder, rows, DATED).accepted
    return dict(accepted.filter(study_id="s").select("rank", "image_id").iter_rows())[0]


@pytest.mark.parametrize(
    "dates",
    [
        ("31.01.2024", "01.02.2024"),
        ("31.1.2024 9:05", "31.1.2024 10:05"),
        ("31/01/2024", "01/02/2024"),
        ("12/31/2023", "1/2/2024"),
        ("2/1/2024 9:05 AM", "2/1/2024 12:05 PM", "2/13/2024"),
        ("2024-01-31", "2024-02-01"),
        ("2024-1-31", "2024-02-01"),
        ("2024-01-31T09:05:00+01:00", "2024-01-31T08:06:00Z"),
        ("20240131", "20240201"),
        ("20240131090500", "20240131100500.25"),
        ("31-Dec-23", "1-Feb-24"),
        ("31. Dez. 2023", "1. M\u00e4rz 2024"),
        ("December 31, 2023", "January 1, 2024"),
        ("9", "10"),
        ("45322.5", "145322.25"),
        ("visit 1", "visit 2"),
    ],
)
def test_the_earlier_image_is_tried_first_however_dates_are_written(tmp_path, dates):
    early, late, *more_dates = dates
    assert first_of_a_study(tmp_path, early, late, *more_dates) == "b"


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        (("01/02/2024", "03/02/2024"), "the dates of lines 2, 3 begin with a number that may be the day or the month"),
        (("31.01.2024", "2024-02-01"), "the dates of lines 2 and 3 are written in two formats"),
        (("31/01/2024", "02/13/2024"), "the dates of lines 2 and 3 are written in two formats"),
        (("20240131", "2024-02-01"), "the dates of lines 2 and 3 are written in two formats"),
        (("2024-01-31T09:05", "2024-01-31T09:05Z"), "the dates of lines 2 and 3 are written in two formats"),
    ],
)
def test_dates_that_may_be_read_in_two_ways_stop_the_run(tmp_path, dates, words):
    with pytest.raises(UserError, match=words) as error:
        first_of_a_study(tmp_path, *dates)
    assert str(error.value).startswith("cohort.manifest: acquired: ")
    assert str(error.value).endswith("write all as year-month-day, such as 2024-01-31")


def test_what_is_no_date_among_dates_excludes_its_row(tmp_path):
    rows = [("p", "s", "a", "1.dcm", "", "31.01.2024"), ("q", "t", "b", "2.dcm", "", "soon"),
            ("r", "u", "c", "3.dcm", "", "32.01.2024"), ("v", "w", "d", "4.dcm", "", "NaN")]  # fmt: skip
    result = run(tmp_path, rows, DATED)
    assert result.reasons == {"b": "bad_row", "c": "bad_row"}
    assert result.details["b"] == "line 3: acquired is not a date in the format of the other rows: use the same format"
    assert result.accepted.sort("image_id")["acquired"].to_list() == ["20240131", None]


def test_times_are_worked_out_by_hand():
    texts = {2: "1/31/2024 12:00 AM", 3: "1/31/2024 12:30 PM", 4: "1/31/24 1:05:06 pm"}
    times = {2: "20240131000000", 3: "20240131123000", 4: "20240131130506"}
    assert sortable_times(texts, "key") == (times, [])
    zones = {2: "2024-01-31 00:30:00.5+01:00", 3: "2024-01-31 00:30:00-0230"}
    assert sortable_times(zones, "key") == ({2: "20240130233000.500000", 3: "20240131030000"}, [])
    assert sortable_times({2: "01/01/2024", 3: "02/02/2024"}, "key") == ({2: "20240101", 3: "20240202"}, [])
    assert sortable_times({}, "key") == ({}, [])
