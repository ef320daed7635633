"""An empty cohort: every stage ends, and the page or one sentence says why there is nothing."""

import html
import json
import re

import pytest

from cohort_runs import write_csv
from conftest import snakemake, write_settings
from cxr.base.tables import read_table
from cxr.reporting.page import sections

HEAD = ("subject_id", "study_id", "image_id", "image_path", "report_path", "findings", "impression", "view")
KINDS = {
    # what is wrong: (stage, reason) of each image
    "no valid image": ["cohort: missing_file", "cohort: unreadable_header", "cohort: not_dicom"],
    "all reports empty": ["reports: no_report", "reports: empty_report"],
    "all excluded": ["cohort: listed"],
}
QUIET = {"figures": {"studies": 1}, "page": {"gallery": 1}}
NO_PAIR = "No pair was made."
ASKED = {
    "agreement": "no image could be compared: 1 no_",
    "review": "holds no pair, so there is nothing to review",
    "training": "train.jsonl holds no pair",
    "evaluation": "holds no pair",
}
"""Targets that need pairs, and what they say."""


def cohort(folder, kind: str, films: list[str]) -> None:
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    (folder / "text.png").write_text("no image")
    paths = ["none.png", "broken.png", "text.png"] if kind == "no valid image" else films
    (folder / "empty.txt").write_text("FINDINGS:\n\nIMPRESSION:\n")
    texts = [("", "Small left pleural effusion.", "")] * 3
    if kind == "all reports empty":
        texts = [("", "", ""), ("empty.txt", "", ""), ("", "", "")]
    rows = [(f"p{n}", f"s{n}", f"i{n}", path, *texts[n], "PA") for n, path in enumerate(paths)]
    write_csv(folder / "manifest.csv", HEAD, rows)
    chosen = {"source": "manifest", "manifest": "manifest.csv", "shards": 2}
    if kind == "all excluded":
        (folder / "out.txt").write_text("s0\ns1\ns2\n")
        chosen["exclude"] = "out.txt"
    drawn = {"categories": [{"id": 1, "name": "opacity"}], "images": [], "annotations": []}
    drawn["images"] = [{"id": 1, "file_name": "i0.png", "height": 512, "width": 512}]
    drawn["annotations"] = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 90, 90], "iscrowd": 0}]
    (folder / "people.json").write_text(json.dumps(drawn))
    people = {"people": {"format": "coco", "path": "people.json", "image_id": "{stem}"}}
    write_settings(folder, {"cohort": chosen, "agreement": {"references": people}} | QUIET)


@pytest.fixture(scope="module", params=KINDS)
def empty_run(request, shared, tmp_path_factory):
    """A finished run of an empty cohort and its kind."""
    folder = tmp_path_factory.mktemp("empty")
    films = [str(path) for path in sorted((shared / "data/nih/images").glob("*.png"))[:3]]
    cohort(folder, request.param, films)
    snakemake(folder, "all", "ablation", "release")
    return request.param, folder


def words(page) -> str:
    text = re.sub(r"<style.*?</style>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.slow
def test_every_stage_ends_with_a_page_that_says_why(empty_run):
    kind, folder = empty_run
    text = words(folder / "results/index.html")
    assert NO_PAIR in text
    for where in KINDS[kind]:
        stage, reason = where.split(": ")
        assert re.search(rf"\d in {stage}: {reason}, ", text), where
    assert set(read_table(folder / "results/tables/conservation.tsv")["balanced"]) == {"yes"}
    for name in ("figures/default/distribution.png", "ablation/curves.png", "ablation/map.png"):
        assert (folder / "results" / name).stat().st_size, name
    assert list(folder.glob("results/release/**/README.md"))


@pytest.mark.slow
def test_what_needs_pairs_says_that_there_are_none(empty_run):
    kind, folder = empty_run
    framed = kind == "all reports empty"  # maps and boxes can be compared with people's
    if framed:
        snakemake(folder, "agreement")
    for target, sentence in ASKED.items():
        if framed and target == "agreement":
            continue
        done = snakemake(folder, target, check=False)
        assert done.returncode, target
        assert sentence in done.stderr, done.stderr[-2000:]
        assert "Traceback" not in done.stderr, target
    done = snakemake(folder, "explain", "--config", "study=s0", check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "cxr-ils:" in done.stderr or "ERROR" in done.stderr


def test_the_page_counts_where_images_stopped(tmp_path):
    (tmp_path / "funnel.tsv").write_text(
        "thresholds\tstage\tremaining\treason\timages\tmeaning\n"
        "default\tinput\t5\t\t\t\n"
        "default\tcohort\t4\tlisted\t1\tlisted in cohort.exclude\n"
        "default\treports\t0\tempty_report\t4\tno text\n"
    )
    stops = sections.rank_losses(read_table(tmp_path / "funnel.tsv"), "default")
    assert [(stop["stage"], stop["reason"], stop["images"]) for stop in stops] == [
        ("reports", "empty_report", 4),
        ("cohort", "listed", 1),
    ]
