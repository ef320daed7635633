"""Reports in the layouts, encodings and forms of other hospitals give the same text and the same tuples."""

from dataclasses import replace
from pathlib import Path

import pytest

from cxr.language.reports import engine, layouts, read_reports, reading
from cxr.language.reports.decoding import NoText, decode, normalize_text
from cxr.language.reports.layouts import paragraphs
from cxr.language.reports.read_reports import ReportsOptions
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings, read
from report_layouts import ENCODINGS, FINDINGS, IMPRESSION, LAYOUTS, TEXT

OPTIONS = ReportsOptions(**stage_options(Settings())["reports"])
STRUCTURE = engine.load_engine("rules", engine.EngineOptions("both_bases"))


STUDY = {"study_id": "s", "subject_id": "p"}


def section_of(path: Path, data: bytes | str, options: ReportsOptions = OPTIONS):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return reading.read_section({**STUDY, "report_path": str(path)}, options)


def sections_of(text: str, column: str = "") -> dict[str, str]:
    found = layouts.split_layout(text, column)
    return {name: part for name, part in found.items() if part}


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_text_and_tuples(name, tmp_path):
    section = section_of(tmp_path / "report.txt", LAYOUTS[name])
    assert isinstance(section, reading.Section), section
    assert section.name == "findings"
    assert section.text == (in_one_line(TEXT) if name == "one_line" else TEXT)  # a line has no paragraphs to keep
    assert section.beside == ("impression", IMPRESSION)
    expected = STRUCTURE([part + "." for part in in_one_line(TEXT).rstrip(".").split(". ")])
    assert STRUCTURE(section.sentences) == expected
    assert [(item["entity"], item["presence"]) for item in expected] == [
        ("cardiomegaly", "positive"), ("pleural effusion", "positive"), ("atelectasis", "positive"),
        ("pneumothorax", "negative"), ("consolidation", "negative"),
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["column_0", "title_case", "wrapped_80"])
def test_every_encoding_gives_the_same_text(encoding, name, tmp_path):
    section = section_of(tmp_path / "report.txt", ENCODINGS[encoding](LAYOUTS[name]))
    assert (section.name, section.text, section.beside) == ("findings", TEXT, ("impression", IMPRESSION))


def test_letters_beyond_ascii_survive_every_encoding():
    text = "FINDINGS: Ménière's café – 5 mm “nodule”."
    for encode in (encode for name, encode in ENCODINGS.items() if name != "windows-1252"):
        assert normalize_text(decode(encode(text))) == text
    assert decode(text.encode("cp1252")) == text
    decomposed = "FINDINGS: Me\u0301nie\u0300re's cafe\u0301 – 5 mm “nodule”."
    assert normalize_text(decode(decomposed.encode())) == text
    assert normalize_text("ﬁndings: eﬀusion, o\u200bpac\u00adity\ufeff") == "findings: effusion, opacity"


@pytest.mark.parametrize(
    "text",
    [
        "The findings: as above, a small effusion. CT findings: none. Other findings: none.",
        "Impression of a small effusion. Findings consistent with edema. Comparison with the prior shows no change.",
        "The lungs are clear and the\nfindings are unchanged. There is no new\nimpression of edema.",
        "FINDINGS ARE CONSISTENT WITH EDEMA. IMPRESSION OF A SMALL EFFUSION.",
        "History of pneumonia. Technique limits the study. Examination is limited. Conclusion cannot be drawn.",
        "Chest: heart - enlarged; lungs - patchy consolidation at both bases.",
        "LUNGS: Clear. PLEURA: No effusion. HEART/MEDIASTINUM: Normal. BONES: Degenerative changes.",
        "New since prior: small left effusion. Unchanged: cardiomegaly. Resolved: edema.",
        "There is an effusion at 10:05 and 12:30. Ratio 1:2. Left: none. Right: small.",
        "Not absent, but smaller: the right pleural effusion.",
    ],
)
def test_prose_holds_no_headings(text):
    assert sections_of(text) == {"findings": in_one_line(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The lungs are clear. Impression: normal.", {"findings": "The lungs are clear.", "impression": "normal."}),
        ("TECHNIQUE: PA.\nLUNGS: Clear\nHEART: Normal\nIMPRESSION: None.",
         {"findings": "LUNGS: Clear\n\nHEART: Normal", "impression": None}),
        ("EXAM: CXR\nINDICATION: cough\n\nThe lungs are clear.", {"last_paragraph": "The lungs are clear."}),
        ("EXAM: CXR\nINDICATION: cough\n\nClear.\n\nElectronically signed by A. Smith", {"last_paragraph": "Clear."}),
        ("Comparison: none. The heart is enlarged.", {"last_paragraph": "The heart is enlarged."}),
        ("FINDINGS: Clear.\nFINDINGS: Small effusion.", {"findings": "Clear.\n\nSmall effusion."}),
        ("RADIOLOGY REPORT\nChest PA.\nFINDINGS: Clear.", {"findings": "Clear."}),
        ("Small effusion.\n\nElectronically signed by A. Smith, MD", {"findings": "Small effusion."}),
        ("FINDINGS:\n\nIMPRESSION: Small effusion.", {"impression": "Small effusion."}),
        ("FINDINGS: Clear.\nADDENDUM: Left effusion.", {"findings": "Clear.", "addendum": "Left effusion."}),
        ("FINDINGS AND IMPRESSION: Clear.", {"impression": "Clear."}),
        ("BEFUND: Kein Erguss.\nBEURTEILUNG: Normal.", {"findings": "Kein Erguss.", "impression": "Normal."}),
        ("Técnica: PA.\nHallazgos: Sin edema.\nImpresión: Normal.",
         {"findings": "Sin edema.", "impression": "Normal."}),
    ],
)  # fmt: skip
def test_what_is_used(text, expected):
    found = sections_of(text)
    assert {name: found.get(name) for name in expected} == expected


def test_statements_on_lines_of_their_own_are_sentences():
    """A short line ends its statement: joined, "No pneumothorax / Small left effusion" would deny the effusion."""
    text = "FINDINGS\nNo pneumothorax\nSmall left pleural effusion\nHeart enlarged"
    section = reading.read_section({**STUDY, "findings": text}, OPTIONS)
    assert section.sentences == ["No pneumothorax", "Small left pleural effusion", "Heart enlarged"]
    found = {item["entity"]: item["presence"] for item in STRUCTURE(section.sentences)}
    assert found == {"pneumothorax": "negative", "pleural effusion": "positive", "cardiomegaly": "positive"}
    capitals = "THERE IS NO EVIDENCE OF\nPNEUMOTHORAX, AND THE RIGHT\nLUNG IS CLEAR OF FOCAL\nCONSOLIDATION."
    assert sections_of(capitals) == {"findings": in_one_line(capitals)}


def test_headings_inside_the_columns_of_a_manifest():
    whole = "CLINICAL HISTORY: Pleural effusion. FINDINGS: Small left effusion. IMPRESSION: No edema."
    section = reading.read_section({**STUDY, "findings": whole}, OPTIONS)
    assert (section.name, section.text, section.beside) == (
        "findings", "Small left effusion.", ("impression", "No edema."),
    )  # fmt: skip
    section = reading.read_section(
        {**STUDY, "findings": None, "impression": "Impression:\n1) Edema.\n2) None."},
        OPTIONS,
    )
    assert (section.name, section.sentences) == ("impression", ["Edema.", "None."])
    both = {**STUDY, "findings": "Clear. IMPRESSION: Normal.", "impression": "Normal."}
    section = reading.read_section(both, OPTIONS)
    assert (section.text, section.beside) == ("Clear.", ("impression", "Normal."))
    section = reading.read_section({**STUDY, "findings": "Indication: cough. Small effusion."}, OPTIONS)
    assert (section.name, section.text) == ("last_paragraph", "Small effusion.")


def test_an_addendum_is_read_beside_the_section():
    section = reading.read_section(
        {**STUDY, "findings": "Clear.\nIMPRESSION: Normal.\nADDENDUM: Left effusion."},
        OPTIONS,
    )
    assert section.beside == ("impression", "Normal.\n\nLeft effusion.")
    section = reading.read_section({**STUDY, "findings": "Clear.\nADDENDUM: Left effusion."}, OPTIONS)
    assert section.beside == ("addendum", "Left effusion.")


def test_mimic_keeps_the_official_rules_and_others_its_corrections_out(tmp_path):
    """A hospital's own study 51410602 is not MIMIC-CXR's, which the official code corrects manually."""
    assert stage_options(Settings())["reports"]["sections"] == "tolerant"
    of_mimic = stage_options(read({"cohort": {"source": "mimic", "root": "x"}}))
    assert of_mimic["reports"]["sections"] == of_mimic["structuring"]["sections"] == "mimic"
    chosen = stage_options(read({"cohort": {"source": "mimic", "root": "x"}, "reports": {"sections": "tolerant"}}))
    assert chosen["reports"]["sections"] == "tolerant"
    path = tmp_path / "r.txt"
    path.write_text(LAYOUTS["column_0"])
    row = {"study_id": "51410602", "subject_id": "p", "report_path": str(path)}
    assert reading.read_section(row, OPTIONS).text == TEXT
    official = replace(OPTIONS, sections="mimic")
    assert reading.read_section(row, official).text != TEXT
    assert reading.read_section(row | {"study_id": "1"}, official) == (
        "empty_report", "no text in findings, impression, last_paragraph",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%PDF-1.7 FINDINGS", "a PDF file: save the report as plain text"),
        (b"PK\x03\x04word/document.xml", "a ZIP or Office file: save the report as plain text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old Office file: save the report as plain text"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image: save the report as plain text"),
        (bytes(range(1, 32)) * 40, "binary data: save the report as plain text"),
    ],
)
def test_what_is_no_text_is_named(data, what, tmp_path):
    with pytest.raises(NoText, match=what):
        decode(data)
    assert section_of(tmp_path / "r", data) == ("unreadable_report", what)


def test_a_file_that_has_gone_or_cannot_be_opened(tmp_path):
    row = {**STUDY, "report_path": str(tmp_path / "gone.txt")}
    assert reading.read_section(row, OPTIONS) == ("missing_report", "the file was removed after the cohort was read")
    assert reading.read_section(row | {"report_path": str(tmp_path)}, OPTIONS) == (
        "unreadable_report", "the file cannot be opened: a folder, not a file",
    )  # fmt: skip
    missing = {**STUDY, "report_path": None, "report_missing": True}
    assert reading.read_section(missing, OPTIONS)[0] == "missing_report"
    assert reading.read_section({**STUDY}, OPTIONS) == ("no_report", "")


def test_a_report_that_is_too_long(tmp_path):
    limits = replace(OPTIONS, max_characters=200)
    text = "Small left effusion. " * 10
    assert len(text) == 210
    expected = ("too_long", "210 characters; reports.max_characters is 200")
    assert section_of(tmp_path / "r", text, limits) == expected
    assert reading.read_section({**STUDY, "findings": text}, limits) == expected
    assert section_of(tmp_path / "r", text[:200], limits).text == text[:200].strip()
    too_long = "the file has 12801 bytes, too many for reports.max_characters = 200"
    assert section_of(tmp_path / "r", " " * 12_801, limits)[1] == too_long


def test_the_report_beside_any_image_of_the_study_is_read():
    images = [{"image_id": "a"}, {"image_id": "b", "findings": " "}, {"image_id": "c", "findings": FINDINGS[0]}]
    assert reading.report_row(images)["image_id"] == "c"
    assert reading.report_row(images[:2])["image_id"] == "a"
    assert reading.report_row([{"image_id": "a"}, {"image_id": "b", "report_missing": True}])["image_id"] == "b"
    assert reading.report_row([{"report_missing": True}, {"image_id": "b", "report_path": "x"}])["image_id"] == "b"


@pytest.mark.parametrize(
    "piece", ["FINDINGS: ", "FINDINGS\n", ": ", "a:", " - ", "findings: (", "\n", "<p", "{\\rtf1", "impression "]
)
def test_the_longest_texts_are_read_in_time_that_grows_with_them(piece):
    """The time does not grow with the square of the length; otherwise such a text would take minutes."""
    text = (piece * 100_000)[:200_000]
    sections_of(decode(text.encode()))


def test_lines_without_capitals_and_full_stops_are_statements_of_their_own():
    assert paragraphs("no ptx\nsmall left eff\nlll atx", 60, frozenset()) == "no ptx\n\nsmall left eff\n\nlll atx"
    assert paragraphs("No ptx, small left\neffusion", 60, frozenset()) == "No ptx, small left effusion"


# ---- marks of exports in a plain text --------------------------------------------------------------------------------

MARKS = {
    "Excel": ("Small left effusion._x000D_\nHeart enlarged._x000D_\n", "Small left effusion.\nHeart enlarged."),
    "Excel, both ends": ("Small left effusion._x000D__x000A_Clear.", "Small left effusion.\nClear."),
    "Excel, a letter": ("caf_x00E9_ au lait _xD83D__xDE00_ spots", "café au lait 😀 spots"),
    "Excel, half a letter": ("spots _xD83D_.", "spots \ufffd."),
    "Excel, an underscore": ("see field_x005F_7", "see field_7"),
    "an entity": ("Nodule &gt; 5 mm &amp; effusion&nbsp;left", "Nodule > 5 mm & effusion left"),
    "an entity twice": ("Nodule &amp;gt; 5 mm", "Nodule > 5 mm"),
    "an entity by number": ("Clear.&#13;\nEffusion.&#xD;&#xA;Heart&#39;s size.", "Clear.\nEffusion.\nHeart's size."),
    "HL7 line end": (r"Clear lungs.\.br\Left effusion.\.sp\Heart.\.sp2\x", "Clear lungs.\nLeft effusion.\nHeart.\nx"),
    "HL7 signs": (r"A \T\ B \F\ C \S\ D \R\ E \E\ F", "A & B | C ^ D ~ E \\ F"),
    "HL7 highlights": (r"\H\clear\N\ lungs\X0D\\X0A\left\.in+4\ base", "clear lungs\nleft  base"),
    "a break": ("Clear lungs.<br>Left effusion.<br />\nHeart.<BR/>End", "Clear lungs.\nLeft effusion.\nHeart.\nEnd"),
    "paragraphs": ("Report\n<p>Clear.</p>\n<p class='x'>Effusion.</p>", "Report\n\nClear.\n\nEffusion."),
    "letters": ("The <b>left</b> <span style='color:red'>effusion</span>", "The left effusion"),
    "inserted text": ("[&lt;No pleural effusion.&gt;] Calcification.", "No pleural effusion.  Calcification."),
    "a script": ("Clear <script>alert('effusion')</script>lungs<!-- effusion -->.", "Clear  lungs ."),
    "a table": ("x <table><tr><td>Clear</td></tr></table>", "x\n\nClear"),
    "nothing": ("Nodule <3 mm, >2 mm; A&B, R&D; 5 &lt 6; x_x; C:\\x; p<0.05 <Name>", None),
    "a literal line end stays": (r"Clear.\nNo effusion.\r\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", MARKS)
def test_marks_of_exports_are_resolved(name):
    text, expected = MARKS[name]
    assert normalize_text(text).strip() == (text if expected is None else expected)


LINE_ENDS = (
    "_x000D_\n", "_x000D__x000A_", "&#13;\n", "&#13;&#10;", "<br>", "<br/>\n", "<BR />", "<cr><lf>", "\\.br\\",
    "\\X0D0A\\",
)  # fmt: skip


@pytest.mark.parametrize("end", LINE_ENDS)
def test_a_report_with_marks_reads_as_the_one_without(end):
    lines = [
        "FINDINGS:",
        "No consolidation &amp; no edema.",
        "Small left effusion.",
        "",
        "IMPRESSION:",
        "Left effusion.",
    ]
    plain = reading.read_section({**STUDY, "findings": "\n".join(lines).replace("&amp;", "&")}, OPTIONS)
    marked = reading.read_section({**STUDY, "findings": end.join(lines)}, OPTIONS)
    assert (marked.text.split(), marked.sentences) == (plain.text.split(), plain.sentences)
    assert marked.beside == plain.beside


def test_a_denial_ends_before_the_mark_behind_it():
    line = read_reports.study_line(
        {**STUDY, "findings": "[&lt;No pleural effusion.&gt;] Left consolidation."},
        read_reports.make_reader(OPTIONS),
    )
    assert [(item["entity"], item["presence"]) for item in line["tuples"]] == [
        ("pleural effusion", "negative"), ("consolidation", "positive")
    ]  # fmt: skip
