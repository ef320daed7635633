"""Manifests as hospitals write them: no row is lost, no two are mixed, and each fault is reported with its line."""

import codecs
import gzip
from pathlib import Path

import polars as pl
import pytest

from cohort_runs import COLUMNS, Result, of, options, run_cohort, write_csv
from cxr.base import user_tables
from cxr.base.errors import UserError
from cxr.imaging.cohort.check import check_inputs
from cxr.imaging.cohort.mimic import read_mimic

XRAY = of()
TEXTS = ("subject_id", "study_id", "image_id", "image_path", "findings")


def images(folder: Path, number: int = 8) -> None:
    for name in range(1, number + 1):
        (folder / f"{name}.dcm").write_bytes(XRAY)


def rows_of(*texts: str) -> list[str]:
    """Return lines of a manifest of :data:`TEXTS`, one per patient, without a header."""
    return [f"p{n},s{n},i{n},{n}.dcm,{text}" for n, text in enumerate(texts, 1)]


def run(folder: Path, data: str | bytes | list[str], name: str = "m.csv", **changes: object) -> Result:
    """Run a manifest: bytes, text, or lines below the header of :data:`TEXTS`."""
    images(folder)
    data = "\n".join([",".join(TEXTS), *data]) + "\n" if isinstance(data, list) else data
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    check_inputs(options(manifest=str(folder / name)))
    return run_cohort(folder, manifest=str(folder / name), shards=1, **changes)


def told(folder: Path, data: str | bytes | list[str], name: str = "m.csv") -> str:
    """Return the message that refuses a manifest: one sentence that names the key and quotes no patient."""
    with pytest.raises(UserError) as error:
        run(folder, data, name)
    sentence = str(error.value)
    assert sentence.startswith(f"cohort.manifest: {folder / name}")
    assert "\n" not in sentence
    assert not {"Heart", "Clear", "p2", "s2"} & set(sentence.replace(",", " ").split())
    return sentence.removeprefix(f"cohort.manifest: {folder / name}")


# ---------------------------------------------------------------------------------- quotation marks, lines


@pytest.mark.parametrize(
    ("texts", "line", "words"),
    [
        # the mark of row 1 ends in row 5: four rows were swallowed, and p1 got the text of p5
        (['"Heart big', "Clear", "Clear", "Clear", 'Clear"', "Clear"], 2, "continues over the rows below it"),
        (['"Heart big', "Clear", '"Clear"'], 2, "text follows the quotation mark"),
        (["Clear", '"Heart big', "Clear"], 3, "never ends"),
        (["Clear", '"Heart" big', "Clear"], 3, "text follows the quotation mark"),
        (["Clear", '"Heart\nbig', "Clear"], 3, "never ends"),
        (['"FINDINGS:\nHeart big."', '"Heart big', "Clear", 'Clear"'], 4, "continues over the rows below it"),
        (['"Heart big', 'Clear"', "Clear"], 2, "continues over the rows below it"),
        (['"Heart big', "Clear,,,,", 'Clear"'], 2, "continues over the rows below it"),
    ],
)
def test_a_stray_quotation_mark_is_told_with_its_line(tmp_path, texts, line, words):
    sentence = told(tmp_path, rows_of(*texts))
    assert f"line {line}" in sentence
    assert words in sentence


def test_quoted_text_may_hold_lines_delimiters_and_marks(tmp_path):
    texts = ['"FINDINGS:\nClear, no effusion.\n\nHeart, mediastinum, pleura, ribs, normal."', '"A ""5"" mm nodule"',
             'A 5" catheter', "Clear"]  # fmt: skip
    result = run(tmp_path, rows_of(*texts))
    result.check_conserved(4)
    assert result.accepted["findings"].to_list() == [
        "FINDINGS:\nClear, no effusion.\n\nHeart, mediastinum, pleura, ribs, normal.", 'A "5" mm nodule',
        'A 5" catheter', "Clear",
    ]  # fmt: skip


def test_text_of_several_lines_without_marks_loses_no_half(tmp_path):
    result = run(tmp_path, rows_of("Heart big\nand lungs clear", "Clear"))
    result.check_conserved(3)
    assert result.accepted["image_id"].to_list() == ["i2"]
    assert result.details["i1"] == (
        'line 2: its text seems to continue in line 3: put a text of several lines into quotation marks ("…")'
    )
    assert result.details["row-3"].startswith("line 3: 1 cells, the header has 5")


def test_rows_of_other_lengths_are_told(tmp_path):
    lines = rows_of("Clear", "Heart big, lungs clear", "Clear,,,", "Clear")
    result = run(tmp_path, [*lines, "p5,s5,i5", "p6,s6,i6,6.d"])
    result.check_conserved(6)
    assert result.accepted["image_id"].to_list() == ["i1", "i3", "i4"]  # empty cells at the end are none
    assert result.accepted["findings"].to_list() == ["Clear"] * 3
    assert {image: detail.partition(":")[0] for image, detail in result.details.items()} == {
        "row-3": "line 3", "row-6": "line 6", "row-7": "line 7",
    }  # fmt: skip
    assert "6 cells, the header has 5" in result.details["row-3"]


def test_a_header_that_ends_with_a_delimiter(tmp_path):
    text = ",".join(TEXTS) + ",\n" + rows_of("Clear")[0] + ",\n"
    assert run(tmp_path, text).accepted["findings"].to_list() == ["Clear"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path, end):
    text = end.join([",".join(TEXTS), *rows_of("Clear", f'"Heart{end}big"')])  # no end of the last line
    assert run(tmp_path, text).accepted["findings"].to_list() == ["Clear", f"Heart{end}big"]
    assert "line 3" in told(tmp_path, end.join([",".join(TEXTS), *rows_of("Clear", '"Heart" big')]))


# ------------------------------------------------------------------------------------- encodings, kinds


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b""), ("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE),
     ("utf-16-be", codecs.BOM_UTF16_BE), ("cp1252", b"")],
)  # fmt: skip
def test_encodings(tmp_path, encoding, mark, caplog):
    text = "\n".join([",".join(TEXTS), *rows_of("Größe: normal – “clear”")])
    assert run(tmp_path, mark + text.encode(encoding)).accepted["findings"].to_list() == ["Größe: normal – “clear”"]
    assert ("is read as Windows-1252" in caplog.text) == (encoding == "cp1252")
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(mark + text.encode(encoding)))
    assert run_cohort(tmp_path, manifest=str(tmp_path / "m.csv.gz")).accepted.height == 1


def test_what_is_no_csv_is_said_of_this_file(tmp_path):
    head = ",".join(TEXTS).encode() + b"\n"
    mixed = "ä".encode() + b"\xe4"
    cases = {
        b"PK\x03\x04\x14\0": "Excel or OpenDocument workbook, or another ZIP file: save its sheet as CSV (UTF-8)",
        b"\xd0\xcf\x11\xe0\xa1": "old Excel workbook: save its sheet as CSV (UTF-8)",
        b"%PDF-1.4": "PDF file",
        b"<html><table>": "is HTML, XML or JSON, not CSV",
        b'{"subject_id": 1}': "is HTML, XML or JSON, not CSV",
        b"SQLite format 3\0": "SQLite database",
        b"": "has no rows",
        b"\n\n \n": "has no rows",
        head: "has no rows",
        head + b"p1,s1,i1,1.dcm,a\0b\n": "is not text: save it as UTF-8 text",
        head + b"p1,s1,i1,1.dcm,a\x1ab\n": ", line 2 has the control character 0x1a",
        head + b"p1,s1,i1,1.dcm,x\np2,s2,i2,2.dcm," + mixed + b"\n": ", line 3 is not UTF-8 although earlier lines are",
        head + b"p1,s1,i1,1.dcm,\x81\n": ", line 2 is neither UTF-8 nor Windows-1252",
        b"\xff\xfea\0\0\xd8b\0": "is damaged UTF-16",
        b"p1,s1,i1,1.dcm,Clear\np2,s2,i2,2.dcm,Clear\n": (
            "has no known heading: write its headings, out of subject_id, study_id, image_id, image_path"
        ),
    }
    for data, words in cases.items():
        assert words in told(tmp_path, data)
    data = gzip.compress(head * 50)
    (tmp_path / "m.csv").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="cannot be read as CSV or Parquet"):
        check_inputs(options(manifest=str(tmp_path / "m.csv")))


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_delimiters_blank_lines_and_headings(tmp_path, mark):
    header = mark.join(["Subject ID", "STUDY_ID", " image-id ", "Image Path", "Findings", "Ward No."])
    rows = [mark.join([f"p{n}", f"s{n}", f"i{n}", f"{n}.dcm", f'"a{mark} b"', "W 1"]) for n in (1, 2)]
    result = run(tmp_path, "\n \n" + "\n".join([header, *rows, "", rows[0].replace("1", "3"), mark * 5]) + "\n")
    result.check_conserved(3)
    assert result.accepted["findings"].to_list() == [f"a{mark} b"] * 3
    assert result.images["Ward No."].to_list() == ["W 1", "W 1", "W 3"]
    assert run(tmp_path, f"sep={mark}\r\n{header}\r\n{rows[0]}\r\n").accepted.height == 1
    assert "line 3" in told(tmp_path, f"\n{header}\n" + rows[0].replace('"a', '"Heart" a'))


def test_two_headings_of_one_column(tmp_path):
    text = "subject_id,study_id,image_id,image_path,findings,Findings\np1,s1,i1,1.dcm,a,b\n"
    assert "has the column 'findings' twice: rename one" in told(tmp_path, text)


def test_a_parquet_manifest(tmp_path):
    images(tmp_path)
    table = pl.DataFrame(
        {"Subject_ID": [1, 2, 3], "study_id": [10.0, None, 12.0], "image_id": ["a", "b", "c"],
         "image_path": ["1.dcm", "2.dcm", "3.dcm"], "findings": ["x, \"y\"\nz", None, "w"], "date": [None, None, None]}
    )  # fmt: skip
    table.write_parquet(tmp_path / "m.parquet")
    check_inputs(options(manifest=str(tmp_path / "m.parquet")))
    result = run_cohort(tmp_path, manifest=str(tmp_path / "m.parquet"))
    result.check_conserved(3)
    assert result.accepted.select("subject_id", "study_id", "findings").rows() == [
        ("1", "10", 'x, "y"\nz'), ("3", "12", "w"),
    ]  # fmt: skip
    assert result.details == {"b": "line 3: study_id is empty"}
    (tmp_path / "m.csv").write_bytes((tmp_path / "m.parquet").read_bytes()[:200])
    with pytest.raises(UserError, match="is a damaged Parquet file"):
        check_inputs(options(manifest=str(tmp_path / "m.csv")))


# --------------------------------------------------------------------------- rows that contradict each other


def conflicts(folder: Path, rows: list[tuple], **options: object) -> dict[str, tuple[str, str]]:
    images(folder)
    for name in ("r1.txt", "r2.txt"):
        (folder / name).write_text("FINDINGS: none")
    result = run_cohort(folder, manifest=write_csv(folder / "m.csv", COLUMNS, rows), **options)
    result.check_conserved(len(rows))
    return {image: (reason, result.details[image]) for image, reason in result.reasons.items()}


def test_what_is_given_to_two_patients_is_given_to_none(tmp_path):
    other = ("p9", "s9", "i9", "8.dcm", "r2.txt")
    study = [("p1", "s1", "a", "1.dcm", ""), ("p2", "s1", "b", "2.dcm", ""), other]
    why = "the study_id is assigned to 2 subjects (lines 2, 3)"
    assert conflicts(tmp_path, study) == {"a": ("bad_row", f"line 2: {why}"), "b": ("bad_row", f"line 3: {why}")}
    strict = {"shared_images": "exclude"}
    picture = [("p1", "s1", "a", "1.dcm", ""), other, ("p2", "s2", "b", "./1.dcm", "")]
    why = "the image file is assigned to 2 subjects (lines 2, 4)"
    told = {"a": ("bad_row", f"line 2: {why}"), "b": ("bad_row", f"line 4: {why}")}
    assert conflicts(tmp_path, picture, **strict) == told
    studies = [("p1", "s1", "a", "1.dcm", ""), ("p1", "s2", "b", "1.dcm", ""), other]
    assert {detail for _, detail in conflicts(tmp_path, studies, **strict).values()} == {
        f"line {n}: the image file is assigned to 2 studies (lines 2, 3)" for n in (2, 3)
    }
    report = [("p1", "s1", "a", "1.dcm", "r1.txt"), ("p2", "s2", "b", "2.dcm", "r1.txt"), other]
    assert {detail for _, detail in conflicts(tmp_path, report).values()} == {
        f"line {n}: the report file is assigned to 2 subjects (lines 2, 3)" for n in (2, 3)
    }
    one_patient = [("p1", "s1", "a", "1.dcm", "r1.txt"), ("p1", "s2", "b", "2.dcm", "r1.txt"), other]
    assert conflicts(tmp_path, one_patient) == {}


def test_one_picture_for_several_reports_is_kept_with_a_warning(tmp_path, caplog):
    rows = [
        ("p1", "s1", "a", "1.dcm", "r1.txt"),
        ("p2", "s2", "b", "./1.dcm", "r2.txt"),
        ("p9", "s9", "i9", "8.dcm", ""),
    ]
    assert conflicts(tmp_path, rows) == {}
    assert "1 image file is assigned to several studies (lines 2, 3), so that several reports" in caplog.text
    assert "cohort.shared_images: exclude" in caplog.text


def test_an_image_twice_is_used_once_and_never_with_another_text(tmp_path):
    same = [("p1", "s1", "a", "1.dcm", "r1.txt")] * 3
    assert {reason for reason, _ in conflicts(tmp_path, same).values()} == {"duplicate_image"}
    assert len(conflicts(tmp_path, same)) == 2
    unlike = [("p1", "s1", "a", "1.dcm", "r1.txt"), ("p1", "s2", "a", "2.dcm", "r2.txt")]
    why = "rows of one image_id differ in study or report (lines 2, 3)"
    assert conflicts(tmp_path, unlike) == {
        "a": ("duplicate_image", f"line 2: {why}"), "a-2": ("duplicate_image", f"line 3: {why}"),
    }  # fmt: skip
    renamed = [("p1", "s1", "a", "1.dcm", "r1.txt"), ("p1", "s1", "b", "1.dcm", "r1.txt")]
    assert conflicts(tmp_path, renamed) == {
        "b": ("duplicate_image", "line 3: another row has the same image file (lines 2, 3)")
    }


def test_a_report_on_one_row_is_its_whole_studys(tmp_path, caplog):
    rows = ["p1,s1,i1,1.dcm,", "p1,s1,i2,2.dcm,Clear", "p2,s2,i3,3.dcm,a", "p2,s2,i4,4.dcm,b", "p3,s3,i5,5.dcm,"]
    result = run(tmp_path, rows)
    assert result.accepted.sort("image_id")["findings"].to_list() == ["Clear", "Clear", "a", "b", None]
    assert "the rows of 1 study name different reports" in caplog.text


# -------------------------------------------------------------------------------- what programs put in a cell


def test_what_spreadsheets_and_programs_make_of_cells(tmp_path):
    lines = rows_of("Clear", "nan", "#NAME?", "Clear")
    lines += ['="005",s5,i5,5.dcm,Clear', "1.23457E+11,s6,i6,6.dcm,Clear", "NaN,s7,i7,7.dcm,Clear"]
    result = run(tmp_path, lines)
    result.check_conserved(7)
    assert result.accepted.sort("image_id").select("subject_id", "findings").rows() == [
        ("p1", "Clear"), ("p2", None), ("p4", "Clear"), ("005", "Clear"),
    ]  # fmt: skip
    assert result.details == {
        "i3": "line 4: findings holds the spreadsheet's error #NAME?: save the column as text",
        "i6": "line 7: subject_id is a number that a spreadsheet has shortened to the form 1.2E+10: save the column"
        " as text",
        "i7": "line 8: subject_id is 'NaN', which stands for a missing value: enter the subject_id",
    }


def test_bad_rows_say_which_cell_and_why(tmp_path):
    long = "名" * 50
    rows = [
        ("", "s1", "a", "1.dcm", ""), ("p2", "s/2", "b", "2.dcm", ""), ("p3", "s3", "x\ny", "3.dcm", ""),
        (long, "s4", "d", "4.dcm", ""), ("p5", "s5", "e", "", ""), ("p6", "..", "f", "6.dcm", ""),
    ]  # fmt: skip
    assert conflicts(tmp_path, rows) == {
        "a": ("bad_row", "line 2: subject_id is empty"),
        "b": ("bad_row", "line 3: study_id holds '/'"),
        "row-4": ("bad_row", "line 4: image_id holds a control character or a line break"),
        "d": ("bad_row", "line 6: subject_id has 150 bytes, at most 128 are allowed"),
        "e": ("bad_row", "line 7: image_path is empty"),
        "f": ("bad_row", "line 8: study_id consists of dots"),
    }
    split = [*COLUMNS, "split"]
    path = write_csv(
        tmp_path / "m.csv",
        tuple(split),
        [("p", "s", "i", "1.dcm", "", "fold 12345"), ("q", "t", "j", "2.dcm", "", "Test")],
    )
    assert run_cohort(tmp_path, manifest=path).details == {
        "i": "line 2: the split 'fold …' is not one of train, validate, test"
    }


# ----------------------------------------------------------------------------------------- other tables


def test_other_tables_are_read_as_strictly(tmp_path):
    (tmp_path / "x.csv").write_text('Dicom ID;label\n"a";x\n"b"c;y\n')
    with pytest.raises(UserError, match=r"cohort\.exclude: .*x\.csv, line 3: text follows the quotation mark"):
        run_cohort(
            tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, [("p",) * 5]), exclude=str(tmp_path / "x.csv")
        )
    write_csv(tmp_path / "q/mask_number.csv", ("image_id", "label"), [("a", "1"), ("b",)])
    with pytest.raises(UserError, match=r"cohort\.chexstruct: .*_number\.csv, line 3 has 1 cells, the header has 2"):
        run_cohort(
            tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, [("p",) * 5]),
            chexstruct=str(tmp_path / "q"),
        )  # fmt: skip
    (tmp_path / "files").mkdir()
    (tmp_path / "a-split.csv").write_text('dicom_id,split\na,"train\nb,test\nc,test"\n')
    with pytest.raises(UserError, match=r"cohort\.tables: .*a-split\.csv, line 2: .* continues over the rows below it"):
        read_mimic(str(tmp_path), "", None)


def test_lines_of_a_cell_that_are_no_rows_are_its_text(tmp_path):
    """As the sequences in Open-i's table of headers."""
    cell = "[(0008, 0100) Code Value SH: 'T-D3000'\n(0008, 0102) Scheme SH: 'SNM3'\n(0008, 0104) Meaning LO: 'Chest']"
    (tmp_path / "x.csv").write_text(f'image,view,code\na,PA,"{cell}"\n')
    names = ("image", "view", "code")
    table = user_tables.read_frame(tmp_path / "x.csv", "cohort.tables", names, ids=names[:1], words=names[:1])
    assert table.rows() == [("a", "PA", cell)]


@pytest.mark.parametrize("between", ["", "b,Clear,AP\n", "b,Clear\n"])
def test_two_stray_marks_in_a_middle_column_swallow_no_row(tmp_path, between):
    (tmp_path / "x.csv").write_text(f'image,text,view\na,"Heart big,PA\n{between}c,Clear",PA\nd,Clear,PA\n')
    names = ("image", "text", "view")
    with pytest.raises(UserError, match=r"line 2: .* continues over the rows below it"):
        user_tables.read_frame(tmp_path / "x.csv", "cohort.tables", names, ids=names[:1], words=names[:1])


def test_a_big_table_reads_as_a_small_one(tmp_path, monkeypatch):
    text = "Image_ID;x\n" + "".join(f"i{n};{n}\n" for n in range(500)) + "j;\n"
    (tmp_path / "t.csv").write_text(text)
    small = user_tables.read_frame(tmp_path / "t.csv", "key", ("image_id",))
    monkeypatch.setattr(user_tables, "_BIG", 10)
    monkeypatch.setattr(user_tables, "_BATCH", 100)
    calls = []
    monkeypatch.setattr(user_tables, "read_sheet", lambda *_: calls.append(1))
    assert user_tables.read_frame(tmp_path / "t.csv", "key", ("image_id",)).equals(small)
    assert not calls
    monkeypatch.undo()
    monkeypatch.setattr(user_tables, "_BIG", 10)
    (tmp_path / "t.csv").write_text(text + "k\n")  # polars alone would fill it up
    with pytest.raises(UserError, match="line 503 has 1 cells, the header has 2"):
        user_tables.read_frame(tmp_path / "t.csv", "key", ("image_id",))
    assert small.columns == ["image_id", "x"]
    assert small.rows()[-1] == ("j", "")
