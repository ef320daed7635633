"""A hospital's folder of reports in various layouts, languages and states: the messages on screen and page."""

import html
import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from cohort_runs import write_csv
from conftest import snakemake, write_settings
from cxr.base.exclusions import REASONS
from cxr.base.tables import read_lines, read_table
from report_layouts import LAYOUTS, TEXT

STRANGE = "The wubbit is gorfled. There is blurfle zorbing of the gludge on the left."
READ = {
    "column_0": LAYOUTS["column_0"].encode(),
    "crlf": LAYOUTS["title_case"].replace("\n", "\r\n").encode(),
    "utf_16": LAYOUTS["lone_capitals"].encode("utf-16"),
    "markdown": LAYOUTS["markdown_headings"].encode("utf-8-sig"),
    "numbered": ("Hôpital\n" + LAYOUTS["numbered"]).encode("cp1252"),
    "one_line": LAYOUTS["one_line"].encode(),
    "no_headings": TEXT.encode(),
    "rtf": LAYOUTS["rtf"].encode(),
    "strange": STRANGE.encode(),
}
UNREAD = {
    "spanish": ("not_english", b"FINDINGS: Sin edema pulmonar."),
    "french": ("not_english", "RÉSULTATS : Pas d'épanchement pleural. Cœur normal.".encode()),
    "german": ("not_english", "BEFUND:\nKein Pleuraerguss. Herz nicht vergrößert.".encode("cp1252")),
    "italian": ("not_english", b"Non versamento pleurico. Non addensamenti parenchimali."),
    "dutch": ("not_english", b"Geen pleuravocht. Hart niet vergroot."),
    "portuguese": ("not_english", "Sem derrame pleural. Coração de tamanho normal.".encode("utf-16")),
    "half_german": ("not_english", b"FINDINGS: The lungs are clear. Kein Pleuraerguss."),
    "pdf": ("unreadable_report", b"%PDF-1.4 FINDINGS: Small effusion."),
    "pending": ("no_report", b"FINDINGS: Report pending. To be dictated."),
    "long": ("too_long", b"FINDINGS: " + b"Small effusion. " * 2000),
    "blank": ("empty_report", b"FINDINGS:\n\nIMPRESSION:\n"),
    "missing": ("missing_report", None),
    "unnamed": ("no_report", None),
}


@pytest.fixture(scope="module")
def hospital(workflow_run, tmp_path_factory) -> tuple[Path, str]:
    """Run the workflow on a folder of reports, all with the same X-ray; return the folder and the screen's text."""
    run = tmp_path_factory.mktemp("hospital")
    image = read_table(workflow_run / "results/cohort/00.parquet")["path"][0]
    (run / "images").mkdir()
    rows = []
    for name, data in READ.items() | {name: data for name, (_, data) in UNREAD.items()}.items():
        path = "" if name == "unnamed" else f"reports/{name}.txt"
        if data is not None:
            (run / "reports").mkdir(exist_ok=True)
            (run / path).write_bytes(data)
        shutil.copy(workflow_run / image, run / f"images/{name}.dcm")
        rows.append((f"p-{name}", f"s-{name}", f"i-{name}", f"images/{name}.dcm", path, "PA"))
    columns = ("subject_id", "study_id", "image_id", "image_path", "report_path", "view")
    write_csv(run / "manifest.csv", columns, rows)
    settings = {
        "cohort": {"source": "manifest", "manifest": "manifest.csv", "shards": 2},
        "page": {"gallery": 1}, "figures": {"studies": 1}, "release": {"withhold": ["pixels"]},
    }  # fmt: skip
    done = snakemake(write_settings(run, settings))
    return run, done.stderr


@pytest.mark.slow
def test_each_report_is_read_or_has_its_reason(hospital):
    run, _ = hospital
    lines = {line["study_id"][2:]: line for path in run.glob("results/reports/*.jsonl") for line in read_lines(path)}
    assert lines.keys() == READ.keys()
    for name in READ.keys() - {"strange"}:
        assert " ".join(lines[name]["section_text"].split()) == " ".join(TEXT.split()), name
        assert lines[name]["tuples"] == lines["column_0"]["tuples"] or name == "one_line", name
        assert lines[name]["unknown_words"] == []
    reasons = read_table(run / "results/reports/excluded.parquet")
    assert {row["study_id"][2:]: row["reason"] for row in reasons.iter_rows(named=True)} == {
        name: reason for name, (reason, _) in UNREAD.items()
    }
    details = dict(reasons.select("study_id", "detail").iter_rows())
    assert details["s-spanish"] == "findings: Spanish"
    assert details["s-half_german"] == "findings: German"
    assert details["s-long"] == "32010 characters; reports.max_characters is 20000"


@pytest.mark.slow
def test_the_screen_says_how_many_and_why(hospital):
    run, screen = hospital
    told = [line for line in screen.splitlines() if line.startswith("cxr-ils: reports: ")]
    assert told == [
        "cxr-ils: reports: 13 of 22 studies have no usable report: "
        f"7 not_english ({REASONS['not_english']}), such as s-dutch; 2 no_report ({REASONS['no_report']}), such as "
        f"s-pending; 1 empty_report ({REASONS['empty_report']}), such as s-blank; 1 missing_report "
        f"({REASONS['missing_report']}), such as s-missing; 2 more reasons (results/reports/reading.tsv)"
    ]
    log = (run / "logs/reports/read.log").read_text()
    assert re.search(r"WARNING reports: 13 of 22 studies have no usable report", log)
    table = read_table(run / "results/reports/reading.tsv")
    assert table.select("outcome", "studies").rows() == [
        ("findings", 8), ("no_findings", 1), ("not_english", 7), ("no_report", 2), ("empty_report", 1),
        ("missing_report", 1), ("too_long", 1), ("unreadable_report", 1),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_page_says_what_was_not_understood(hospital):
    run, _ = hospital
    page = (run / "results/index.html").read_text(encoding="utf-8")
    section = re.search(r'<section id="reports">.*?</section>', page, re.S)[0]
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())
    assert "13 of 22 studies have no usable report." in text
    assert f"not_english 7 31.8 s-dutch {REASONS['not_english']}" in text
    words = ["blurfle", "gludge", "gorfled", "wubbit", "zorbing"]
    assert re.findall(r'<th scope="row">(\w+)</th><td class="n">1</td><td class="n">1</td>', section) == words
    assert "There is blurfle zorbing of the gludge on the left." in text
    table = read_table(run / "results/reports/unknown_words.tsv")
    assert table["word"].to_list() == words
    assert table["example"][2] == "The wubbit is gorfled."


@pytest.mark.slow
def test_silence_of_a_report_that_was_not_understood_denies_nothing(hospital):
    """ "The wubbit is gorfled." is not understood, so its silence about cardiomegaly must not deny it."""
    run, _ = hospital
    dropped = read_table(run / "results/dataset/default/dropped.parquet")
    strange = dropped.filter((pl.col("study_id") == "s-strange") & (pl.col("polarity") == "negative"))
    assert set(strange["reason"]) <= {"not_understood", "section_silent"}
    assert strange.filter(pl.col("target") == "cardiomegaly")["reason"].to_list() == ["not_understood"]
    pairs = [json.loads(line) for path in run.glob("results/dataset/default/*.jsonl") for line in path.open()]
    assert not [pair for pair in pairs if pair["study_id"] == "s-strange"]
