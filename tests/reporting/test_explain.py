"""Explain: the text on studies with every kind of result, against the ledgers and tables behind it."""

import base64
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest

import explain as program
from conftest import SLICE, snakemake, write_settings
from cxr.base.errors import UserError
from cxr.base.exclusions import REASONS
from cxr.base.tables import read_lines, read_table, write_corrected, write_excluded, write_lines, write_table
from cxr.base.vocabulary import SPLITS
from cxr.reporting.explain.document import Mark, merge_marks
from cxr.reporting.explain.explain_study import box_rows, explain, summarize_images
from cxr.reporting.explain.request import read_request
from cxr.reporting.explain.study import read_study

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def results(workflow_run, tmp_path) -> Path:
    """The results of the slice, of which a test may replace files."""
    for part in ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks/default", "dataset"):
        shutil.copytree(workflow_run / "results" / part, tmp_path / "results" / part, copy_function=os.link)
    return tmp_path / "results"


@pytest.fixture(scope="module")
def text_by_study(workflow_run) -> dict[str, str]:
    """{study: its text}."""
    studies = sorted(set(read_table(workflow_run / "results/cohort/images.parquet")["study_id"]))
    return {study: explain(workflow_run / "results", study, (), 40)[0] for study in studies}


def images(results: Path) -> list[dict]:
    return read_table(results / "cohort/images.parquet").to_dicts()


def pairs(results: Path, image_id: str) -> list[dict]:
    lines = (line for split in SPLITS for line in read_lines(results / f"dataset/default/{split}.jsonl"))
    return [line for line in lines if line["image_id"] == image_id]


def with_finding(results: Path) -> dict:
    """A finding with boxes judged and a mask."""
    rows = read_table(results / "masks/default/findings.parquet").to_dicts()
    return next(row for row in rows if row["box_verdicts"] and row["mask_id"])


def squeezed(text: str) -> str:
    return " ".join(text.split())


def exclude(results: Path, stage: str, image_id: str, reason: str, detail: str) -> None:
    """Let a stage have excluded an image; its results stay, but the text must not report them."""
    shard = next(row["shard"] for row in images(results) if row["image_id"] == image_id)
    path = "dataset/default/excluded.parquet" if stage == "dataset" else f"{stage}/{shard}.excluded.parquet"
    row = {"image_id": image_id, "study_id": "", "stage": stage, "reason": reason, "detail": detail}
    write_excluded(results / path, [row])


def test_corrections_of_a_header_are_told(results):
    row = next(row for row in images(results) if row["reason"] is None)
    path = results / f"frames/{row['shard']}.corrected.parquet"
    note = "turned upright by its PatientOrientation 'R F'"
    path.unlink()
    write_corrected(path, [{"image_id": row["image_id"], "study_id": row["study_id"], "correction": note}])
    assert f"Its file: {note}." in squeezed(explain(results, row["study_id"], (), 40)[0])


def test_every_image_of_the_slice_has_its_sentence(workflow_run):
    results = workflow_run / "results"
    stopped = {
        row["image_id"]: row
        for stage in ("cohort", "frames", "dataset")
        for row in read_table(results / stage / "excluded.parquet").to_dicts()
    }
    assert {row["reason"] for row in stopped.values()} >= {"not_frontal", "undecodable", "not_selected"}
    seen = []
    for study in {row["study_id"] for row in images(results)}:
        seen += summarize_images(read_study(results, study, ["default"]))
    expected = []
    for image_id in (row["image_id"] for row in images(results)):
        if row := stopped.get(image_id):
            under = " under default:" if row["stage"] == "dataset" else ""
            detail = f"; {row['detail']}" if row["detail"] else ""
            expected.append(
                f"{image_id}{under} stopped in {row['stage']}: {row['reason']} ({REASONS[row['reason']]}{detail})."
            )
        else:
            made = pairs(results, image_id)
            positive = sum(pair["mask_id"] is not None for pair in made)
            noun = "pair" if len(made) == 1 else "pairs"
            signs = f"{positive} positive and {len(made) - positive} negative"
            expected.append(f"{image_id} under default: {len(made)} {noun}, {signs}.")
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize(
    ("stage", "reason", "detail", "sentence"),
    [
        ("frames", "undecodable", "JPEG 2000", "frames: undecodable (the pixel data cannot be decoded; JPEG 2000)."),
        (
            "reports",
            "no_report",
            "",
            "reports: no_report (the study has no report, or a text that does not describe the chest).",
        ),
        ("organs", "cut_off", "0.3", "organs: cut_off (the lung fields are not completely in the image; 0.3)."),
        ("anomaly", "bad_map", "", "anomaly: bad_map (the anomaly map holds values that are not finite)."),
        ("anatomy", "missing_anatomy", "9", "anatomy: missing_anatomy (too few anatomy masks are non-empty; 9)."),
        ("boxes", "engine_failure", "", "boxes: engine_failure (the engine failed on this image)."),
        ("dataset", "no_pairs", "x", "dataset: no_pairs (no instruction-answer pair could be made; x)."),
    ],
)
def test_a_study_that_stopped_is_told_by_its_stage_and_reason(results, stage, reason, detail, sentence):
    image_id = with_finding(results)["image_id"]
    study = next(row["study_id"] for row in images(results) if row["image_id"] == image_id)
    exclude(results, stage, image_id, reason, detail)
    text = explain(results, study, (), 40)[0]
    under = " under default:" if stage == "dataset" else ""
    assert f"{image_id}{under} stopped in {sentence}" in squeezed(text)
    assert ("Under the threshold set default" in text) == (stage == "dataset")
    assert "Pairs\n" not in text
    steps = read_study(results, study, ()).images[0].steps
    after = {"frames": ("organs", "anomaly", "anatomy", "boxes"), "organs": ("anomaly", "anatomy"),
             "anomaly": ("anatomy",)}.get(stage, ())  # fmt: skip
    assert {step.stage for step in steps if step.state == "not reached"} == set(after)


def test_what_is_not_made_yet_is_said_to_be_missing(results):
    study = with_finding(results)["study_id"]
    (image_id,) = {line["image_id"] for line in pairs(results, with_finding(results)["image_id"])}
    shutil.rmtree(results / "dataset")
    assert f"{image_id} under default: dataset has no results of this image yet." in explain(results, study, (), 40)[0]
    shutil.rmtree(results / "masks")
    text = squeezed(explain(results, study, (), 40)[0])
    assert f"{image_id} passed every stage before masks; no threshold set has masks yet." in text
    shutil.rmtree(results / "organs")
    text = explain(results, study, (), 40)[0]
    assert f"{image_id} is accepted so far; organs has no results of this image yet." in text
    steps = {step.stage: step.state for step in read_study(results, study, ()).images[0].steps}
    assert steps["anomaly"] == "no results yet"
    assert steps["boxes"] == "passed"
    for stage in ("frames", "reports", "anomaly", "anatomy", "boxes"):
        shutil.rmtree(results / stage)
    text = explain(results, study, (), 40)[0]
    assert f"{image_id} is accepted so far; frames has no results of this image yet." in text
    assert "No report of this study was read." in text


@pytest.mark.slow
def test_the_numbers_beside_the_thresholds_agree_with_what_was_decided(workflow_run, text_by_study):
    """The numbers are measured here on the stored arrays; the signs are the verdicts that the masks stage stored."""
    signs = []
    for text in text_by_study.values():
        for value, sign, tau in re.findall(r"(\d\.\d{3}) (<|>=) (\d[\d.]*)", text):
            signs.append(sign)
            assert float(value) <= float(tau) + 0.0005 if sign == "<" else float(value) >= float(tau) - 0.0005
    rows = read_table(workflow_run / "results/masks/default/findings.parquet").to_dicts()
    judged = [row for row in rows if row["box_verdicts"]]
    assert len(signs) == 4 * sum(min(12, len(row["box_verdicts"])) for row in judged)
    assert {"<", ">="} == set(signs)
    tables = [line for text in text_by_study.values() for line in text.splitlines()]
    productive = sum(line.endswith("productive") for line in tables)
    assert productive == sum(min(12, row["box_verdicts"].count(0)) for row in judged)


def test_the_numbers_have_the_lungs_of_the_organs_stage(results):
    """Algorithm 1's lungs are made on the image: moved, they change c4's number, and no other one."""
    row = with_finding(results)
    study = read_study(results, row["study_id"], ["default"])
    image = next(image for image in study.images if image.image_id == row["image_id"])
    settings = json.loads(study.outcomes["default"][image.image_id].settings)

    def numbers() -> list[list[str]]:
        return [cells[2:6] for cells in box_rows(row, image, settings)]

    stored = numbers()
    image.arrays["organs"] = {label: np.roll(mask, 60, axis=0) for label, mask in image.arrays["organs"].items()}
    moved = numbers()
    assert [cells[:3] for cells in moved] == [cells[:3] for cells in stored]
    assert any(one[3] != other[3] for one, other in zip(stored, moved, strict=True))


@pytest.mark.slow
def test_findings_stand_in_the_report_where_they_were_read(workflow_run, text_by_study):
    lines = [line for path in (workflow_run / "results/reports").glob("*.jsonl") for line in read_lines(path)]
    assert lines
    for line in lines:
        text = squeezed(text_by_study[line["study_id"]])
        for number, one in enumerate(line["tuples"]):
            words = squeezed(line["section_text"][slice(*one["span"])])
            assert re.search(rf"\[[^\]|]*{re.escape(words)}[^|]* \| [^\]]*\b{number} {one['presence']}", text)


def test_every_pair_and_every_pair_not_made_is_told(workflow_run, text_by_study):
    results = workflow_run / "results"
    dropped = read_table(results / "dataset/default/dropped.parquet").to_dicts()
    for row in images(results):
        text = squeezed(text_by_study[row["study_id"]])
        for pair in pairs(results, row["image_id"]):
            assert f"{pair['pair_id']} {pair['type']} {pair['instruction']} {pair['answer']}" in text
    for row in dropped:
        assert re.search(rf"{row['polarity']} .*{row['target']} .*{row['reason']}: \w", text_by_study[row["study_id"]])


def test_threshold_sets_stand_side_by_side(results):
    row = with_finding(results)
    shutil.copytree(results / "masks/default", results / "masks/other", copy_function=os.link)
    shutil.copytree(results / "dataset/default", results / "dataset/other", copy_function=os.link)
    shard = next(image["shard"] for image in images(results) if image["image_id"] == row["image_id"])
    path = results / f"masks/other/{shard}.findings.parquet"
    this = (pl.col("image_id") == row["image_id"]) & (pl.col("finding") == row["finding"])
    lost = {"mask_id": None, "reason": "no_productive_box", "area": 0}
    changed = [pl.when(this).then(pl.lit(value)).otherwise(pl.col(name)).alias(name) for name, value in lost.items()]
    write_table(path, read_table(path).with_columns(changed))
    text = squeezed(explain(results, row["study_id"], (), 40)[0])
    grounded = ", ".join(row["grounded"])
    assert (
        f"{row['image_id']} {row['finding']} {row['entity']} mask of {row['area']:,} px, grounded in {grounded} "
        "no mask: no_productive_box"
    ) in text
    assert "Under the threshold set other" in text
    alone = explain(results, row["study_id"], ["other"], 40)[0]
    assert "Threshold sets side by side" not in alone
    assert "Under the threshold set default" not in alone


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.pictures, self.links, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [value for name, value in attrs.items() if name in ("src", "href")]
        if tag == "img":
            self.pictures.append(attrs)
        elif tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(workflow_run):
    row = with_finding(workflow_run / "results")
    page = explain(workflow_run / "results", row["study_id"], (), 40)[1]
    parser = Page()
    parser.feed(page)
    assert parser.open == []
    assert all(link.startswith("data:image/png;base64,") for link in parser.links)
    assert [picture["alt"] for picture in parser.pictures] == [
        f"Image {row['image_id']}: image and organs",
        f"Image {row['image_id']}: edited image and zones",
        f"Image {row['image_id']}: anomaly map",
        f"Boxes and masks of {row['image_id']} under the thresholds default",
    ]
    assert all(base64.b64decode(picture["src"].split(",")[1]).startswith(PNG) for picture in parser.pictures)
    assert "<mark " in page


def test_an_image_that_was_not_edited_is_told(results):
    row = with_finding(results)
    shard = next(image["shard"] for image in images(results) if image["image_id"] == row["image_id"])
    path = results / f"anomaly/{shard}.h5"
    shutil.copyfile(path, path.with_suffix(".new"))  # the other is a link to the run's
    path.with_suffix(".new").replace(path)
    with h5py.File(path, "r+") as file:
        file["unedited"][list(file["image_id"].asstr()[:]).index(row["image_id"])] = 1
    text, page = explain(results, row["study_id"], (), 40)
    sentence = "The image was not edited, because the report states no finding that needs a mask from the anomaly map"
    assert sentence in squeezed(text)
    assert f'alt="Image {row["image_id"]}: image (not edited) and zones"' in page
    assert "edited image" not in page
    assert sentence not in squeezed(explain(results, other_study(results, shard), (), 40)[0])


def other_study(results: Path, shard: str) -> str:
    """A study of another shard."""
    return next(image["study_id"] for image in images(results) if image["shard"] not in (shard, ""))


def test_text_of_a_report_is_no_html(results):
    row = with_finding(results)
    shard = next(image["shard"] for image in images(results) if image["image_id"] == row["image_id"])
    path = results / f"reports/{shard}.jsonl"
    lines = list(read_lines(path))
    for finding in (finding for line in lines for finding in line["tuples"]):
        finding["entity"] = f"<b>{finding['entity']}"
    write_lines(path, lines)
    page = explain(results, row["study_id"], (), 40)[1]
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_marks_that_overlap_become_one():
    marks = [Mark(4, 9, "positive", "1"), Mark(0, 3, "negative", "0"), Mark(8, 12, "negative", "2")]
    assert merge_marks(marks) == [Mark(0, 3, "negative", "0"), Mark(4, 12, "positive", "1, 2")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["nobody"],
            "study is 'nobody', which is not one of the 9 studies of {}/cohort/images.parquet: give one of these ids",
        ),
        (
            ["SYN0001-1", "--thresholds", "half"],
            "thresholds names 'half', but the sets with masks are default: choose one of these, or make the masks with "
            "`snakemake results/masks/half/index.parquet`",
        ),
        (
            ["SYN0001-1", "--results", "nowhere"],
            "study is 'SYN0001-1', but nowhere/cohort/images.parquet is missing: make it with `snakemake cohort`",
        ),
    ],
)
def test_the_programs_mistakes_are_one_sentence(workflow_run, arguments, sentence, capsys):
    results = str(workflow_run / "results")
    more = [] if "--results" in arguments else ["--results", results]
    assert program.main([*arguments, *more]) == 1
    assert capsys.readouterr().err == f"cxr-ils: {sentence.format(results)}\n"


def test_the_program_prints_the_text_and_writes_the_page(workflow_run, tmp_path, capsys, text_by_study):
    page = tmp_path / "study.html"
    arguments = ["SYN0001-1", "--results", str(workflow_run / "results"), "--thresholds", "default"]
    assert program.main([*arguments, "--page", str(page)]) == 0
    assert capsys.readouterr().out == text_by_study["SYN0001-1"]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_study_given_as_a_number_is_looked_for_as_text(results):
    path = results / "cohort/images.parquet"
    write_table(path, read_table(path).with_columns(study_id=pl.lit("50414267")))
    assert read_request({"study": 50414267}, results)["study"] == "50414267"
    assert read_request({}, results) == {"study": "", "results_digest": "", "page": ""}
    with pytest.raises(
        UserError, match=re.escape("""give one of these ids (write an id with leading zeros as study="'007'")""")
    ):
        read_request({"study": 7}, results)


@pytest.mark.slow
def test_snakemake_explain_makes_nothing_else_and_follows_the_results(results, text_by_study, dry_run):
    directory = write_settings(results.parent, SLICE)
    asked_for = ("explain", "--config", "study=SYN0005-1")
    assert dry_run(directory, *asked_for) == {"explain_study": 1, "explain": 1}
    done = snakemake(directory, *asked_for)
    text = text_by_study["SYN0005-1"]
    assert text in done.stdout + done.stderr
    assert (results / "explain/SYN0005-1.txt").read_text() == text
    assert (results / "explain/SYN0005-1.html").is_file()
    assert dry_run(directory, *asked_for) == {}
    exclude(results, "organs", "SYN0005-1-1", "no_lungs", "")
    assert dry_run(directory, *asked_for) == {"explain_study": 1, "explain": 1}
