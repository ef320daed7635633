"""A manifest with the commonest mistakes over real X-rays: from the bare command to the page that tells them."""

import html
import re
import shutil
from pathlib import Path

import pytest

from conftest import snakemake, write_settings
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import SPLITS

HEADINGS = "Subject ID;Study ID;Image-ID;IMAGE PATH;Findings;View;Split"
OPACITY = '"There is a left basilar opacity; no pleural effusion.\nThe heart is normal in size."'
GREAT = "Moderate cardiomegaly. Mild pulmonary edema, größer."


def manifest(data: Path, folder: Path) -> list[str]:
    """Write what the rows name and return the rows, as a hospital's spreadsheet saves them."""
    folder.mkdir(parents=True)
    pictures = sorted((data / "nih/images").glob("*.png"))[:8]
    for number, path in enumerate(pictures):
        shutil.copy(path, folder / f"{number}.png")
    for path in (data / "dicom").glob("*.dcm"):
        shutil.copy(path, folder / path.name)
    (folder / "cut.png").write_bytes(pictures[0].read_bytes()[:20_000])
    (folder / "notes.dcm").write_text("These are notes of the ward, no picture.\n" * 20)
    return [
        f"=1+1;$x_^$;<b>q;0.png;{OPACITY};PA;train",
        f"p2;'s' {{2}};i2;1.png;{GREAT};AP;test",
        "p3;s3;i3;rsna_cr_pa_jpegbaseline_mono2.dcm;Right lower lobe consolidation, likely pneumonia.;;validate",
        "",
        f"p4;s4;missing;nowhere/4.png;{GREAT};PA;",
        "p5;s5;torn;2.png;Heart big; lungs clear;PA;train;",
        f"p6;;no-study;2.png;{GREAT};PA;",
        f"1.23457E+11;s7;shortened;3.png;{GREAT};PA;",
        f"p8;s8;one-study-a;4.png;{GREAT};PA;",
        f"p9;s8;one-study-b;5.png;{GREAT};PA;",
        f"p2;'s' {{2}};i2;1.png;{GREAT};AP;test",
        f"p10;s10;lateral;6.png;{GREAT};LATERAL;",
        f"p11;s11;frontal;7.png;{GREAT};frontal;",
        f"p12;s12;ct;nih_p2_header_modality_ct.dcm;{GREAT};;",
        f"p13;s13;leg;neg_extremity_cr_mono1_j2k_lossless.dcm;{GREAT};;",
        f"p14;s14;notes;notes.dcm;{GREAT};;",
        f"p15;s15;cut;cut.png;{GREAT};PA;",
        "p16;s16;silent;2.png;NULL;PA;",
    ]


TOLD = {
    ("cohort", "missing"): ("missing_file", "its folder does not exist"),
    ("cohort", "row-8"): ("bad_row", 'line 8: 8 cells, the header has 7: put a cell that holds the delimiter into'
                          ' quotation marks ("…")'),
    ("cohort", "no-study"): ("bad_row", "line 9: study_id is empty"),
    ("cohort", "shortened"): ("bad_row", "line 10: subject_id is a number that a spreadsheet has shortened to the form"
                              " 1.2E+10: save the column as text"),
    ("cohort", "one-study-a"): ("bad_row", "line 11: the study_id is assigned to 2 subjects (lines 11, 12)"),
    ("cohort", "one-study-b"): ("bad_row", "line 12: the study_id is assigned to 2 subjects (lines 11, 12)"),
    ("cohort", "i2-2"): ("duplicate_image", "line 13: another row has the same image_id"),
    ("cohort", "lateral"): ("not_frontal", "lateral, oblique or other, by the table"),
    ("cohort", "frontal"): ("unknown_view", "the table's 'frontal' is not understood; the file: a PNG or JPEG file"
                            " does not state a view"),
    ("cohort", "ct"): ("wrong_modality", "CT"),
    ("cohort", "leg"): ("wrong_body_part", "EXTREMITY"),
    ("cohort", "notes"): ("not_dicom", ""),
    ("frames", "cut"): ("undecodable", "truncated PNG"),
    ("reports", "silent"): ("no_report", ""),
}  # fmt: skip


@pytest.mark.slow
def test_a_manifest_with_the_commonest_mistakes_ends_in_a_page_that_says_them(shared, tmp_path):
    lines = [HEADINGS, *manifest(shared / "data", tmp_path / "given")]
    (tmp_path / "given/manifest.csv").write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))
    settings = {"cohort": {"source": "manifest", "manifest": "given/manifest.csv", "shards": 1},
                "figures": {"studies": 1}, "page": {"gallery": 1}}  # fmt: skip
    done = snakemake(write_settings(tmp_path, settings))
    assert "Traceback" not in done.stderr
    assert "is read as Windows-1252" in done.stderr

    ledgers = {
        stage: read_table(tmp_path / f"results/{stage}/excluded.parquet") for stage in ("cohort", "frames", "reports")
    }
    told = {(stage, row["image_id"]): (row["reason"], row["detail"])
            for stage, ledger in ledgers.items() for row in ledger.iter_rows(named=True)}  # fmt: skip
    assert told == TOLD
    pairs = [pair for split in SPLITS for pair in read_lines(tmp_path / f"results/dataset/default/{split}.jsonl")]
    of_image = {pair["image_id"]: (pair["subject_id"], pair["study_id"]) for pair in pairs}
    assert of_image.items() <= {
        "<b>q": ("=1+1", "$x_^$"), "i2": ("p2", "'s' {2}"), "i3": ("p3", "s3")
    }.items()  # fmt: skip
    assert "größer" in next(pair["section_content"] for pair in pairs if pair["image_id"] == "i2")

    page = (tmp_path / "results/index.html").read_text(encoding="utf-8")
    assert "<b>q" not in page
    shown = html.unescape(re.sub(r"<[^>]+>", " ", page))
    for reason, detail in TOLD.values():
        assert reason in shown
        assert detail in shown
    explained = snakemake(tmp_path, "explain", "--config", "study='$x_^$'")
    assert "Study $x_^$" in explained.stdout + explained.stderr
    assert (tmp_path / "results/explain/%24x_%5E%24.html").is_file()
