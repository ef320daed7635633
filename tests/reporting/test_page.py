"""The page: the choice of cases, every number against its table, alternative texts of pictures, and a phone's view."""

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from markupsafe import escape

from browser import CHROMIUM, Browser
from conftest import ROOT
from cxr.base.columns import schema
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import CORRECTED, read_lines, read_table, write_corrected, write_table
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.ils.masks.box_conditions import MASKS_OUTDATED, MEASURED_CONDITIONS, BoxJudgement, format_measure, judge_boxes
from cxr.ils.masks.thresholds import exact_fraction
from cxr.reporting.explain.explain_study import explain
from cxr.reporting.page import cases, costs, drawing, gallery, render, sections, versions
from cxr.reporting.review.page import Form, write_page
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read

DESK, PHONE = (1280, 1000), (390, 844)
TAUS = {"ano": 0.1, "anatomy": 0.25, "conf": 0.2, "signal": 0.2, "size": 0.1}
STAGES = ("frames", "organs", "anomaly", "anatomy")


# --- which findings, images and boxes, in which words


def findings(rows: list[tuple[str, int, str, str | None, list[int]]]) -> pl.DataFrame:
    schema = {
        "image_id": pl.String, "finding": pl.Int64, "target": pl.String, "mask_id": pl.String,
        "box_verdicts": pl.List(pl.UInt8),
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_a_lesion_shows_masks_and_a_finding_without_one():
    rows = [(f"m{i}", 0, "edema", f"k{i}", [0]) for i in range(9)] + [("n", 0, "edema", None, [2])]
    rows += [("silent", 0, "edema", None, [])]  # no box was judged: nothing to show
    chosen = [row for _, row in cases.choose_cases([findings(rows)], 3, seed=1)]
    assert [row["mask_id"] is None for row in chosen] == [False, False, True]
    assert len({row["image_id"] for row in chosen}) == 3
    assert chosen[2]["image_id"] == "n"
    assert len(cases.choose_cases([findings(rows[:2])], 3, seed=1)) == 2
    assert cases.choose_cases([findings(rows)], 0, seed=1) == []


def test_one_image_is_shown_once_a_lesion():
    rows = [("a", i, "opacity", f"k{i}", [0]) for i in range(4)] + [("a", 9, "edema", "k", [0])]
    chosen = [row for _, row in cases.choose_cases([findings(rows)], 3, seed=1)]
    assert [row["target"] for row in chosen] == ["opacity", "edema"]


def test_the_cases_do_not_depend_on_the_shards():
    rows = [(f"i{i}", 0, LESIONS[i % 7], f"m{i}" if i % 3 else None, [1]) for i in range(60)]
    whole = [row["image_id"] for _, row in cases.choose_cases([findings(rows)], 3, seed=1)]
    parts = [findings(rows[40:]), findings(rows[:10]), findings(rows[10:40])]
    assert [row["image_id"] for _, row in cases.choose_cases(parts, 3, seed=1)] == whole
    assert [row["image_id"] for _, row in cases.choose_cases([findings(rows)], 3, seed=2)] != whole


def test_images_that_the_sets_treat_differently_come_first():
    one = findings([(f"i{i}", 0, "edema", f"m{i}", [0]) for i in range(6)] + [("heart", 0, "cardiomegaly", "h", [])])
    other = findings([(f"i{i}", 0, "edema", f"m{i}" if i != 4 else "wider", [0]) for i in range(6)])
    chosen = cases.choose_images({"a": [one], "b": [other]}, 3, seed=1)
    assert chosen[0] == (0, "i4")
    assert len(set(chosen)) == 3
    everything = cases.choose_images({"a": [one], "b": [other]}, 99, seed=1)
    assert {name for _, name in everything} == {f"i{i}" for i in range(6)}


@pytest.mark.parametrize(
    ("verdicts", "number", "shown"),
    [
        ([1, 0, 0, 3, 0, 2], 4, [1, 2, 0, 5]),  # two kept, two that failed least
        ([0, 0, 0, 0, 1], 4, [0, 1, 2, 4]),
        ([7, 1, 15], 4, [1, 0, 2]),
        ([0] * 5, 4, [0, 1, 2, 3]),
        ([1, 0], 1, [1]),
        ([], 4, []),
    ],
)
def test_half_of_the_boxes_shown_are_kept_ones(verdicts, number, shown):
    confidences = [1 - 0.1 * i for i in range(len(verdicts))]
    assert cases.choose_boxes(verdicts, confidences, number) == shown


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (
            0,
            "kept: overlap with the reported location 0.249, confidence 0.300, anomalous share 0.500, "
            "overlap with a lung 0.099",
        ),
        (1, "dropped: overlap with the reported location 0.249 < 0.25"),
        (0b1010, "dropped: confidence 0.300 < 0.2, overlap with a lung 0.099 < 0.1"),
        (0b10000, "dropped: no pixel"),
        (0b100000, "dropped: nothing left to mask"),
    ],
)  # fmt: skip
def test_a_reason_names_what_failed_and_its_number(verdict, words):
    # a number just below its threshold must not be rounded up to it
    values = {"anatomy": 0.24999, "conf": 0.3, "signal": 0.5, "size": 0.0996}
    below = [name for bit, name in enumerate(MEASURED_CONDITIONS) if verdict >> bit & 1]
    assert cases.describe_verdict(verdict, BoxJudgement(values, below), TAUS) == words


@pytest.mark.parametrize(
    ("verdict", "words"), [(0, "kept"), (0b11, "dropped: overlap with the reported location, confidence")]
)
def test_a_reason_has_no_number_of_maps_that_have_changed(verdict, words):
    judged = BoxJudgement(dict.fromkeys(MEASURED_CONDITIONS, 0.0), ["size"])
    assert cases.describe_verdict(verdict, judged, TAUS) == f"{words} ({MASKS_OUTDATED})"


def test_every_outcome_of_a_finding_has_words():
    source = (ROOT / "scripts/cxr/ils/masks/outcomes.py").read_text()
    assert set(re.findall(r'"(no_\w+|empty_\w+)"', source)) == cases.OUTCOMES.keys()


def test_the_numbers_agree_with_every_stored_verdict(workflow_run):
    """The verdicts are the masks stage's; the numbers are of the stored arrays, and each beside its threshold."""
    results, compared = workflow_run / "results", 0
    for shard in ("00", "01", "02"):
        table = read_table(results / f"masks/default/{shard}.findings.parquet")
        boxes = read_table(results / f"boxes/{shard}.parquet").filter(pl.col("is_used"))
        with (
            Shard(results / f"anomaly/{shard}.h5") as anomaly,
            Shard(results / f"anatomy/{shard}.h5") as anatomy,
            Shard(results / f"organs/{shard}.h5") as organs,
            Shard(results / f"masks/default/{shard}.h5", key="mask_id") as masks,
        ):
            settings = json.loads(masks.attrs["settings"])
            for row in table.filter(pl.col("box_verdicts").list.len() > 0).iter_rows(named=True):
                zones = anatomy.masks(row["image_id"])
                own = boxes.filter(pl.col("image_id") == row["image_id"]).to_dicts()
                taus = TAUS | ({"ano": 0.01, "conf": 0.01} if row["target"] == "edema" else {})
                lungs = organs.masks(row["image_id"])
                map_ = anomaly.get("anomaly", row["image_id"])
                found = judge_boxes(own, row["reported"], zones, lungs, map_, target=row["target"], settings=settings)
                for judged, verdict in zip(found, row["box_verdicts"], strict=True):
                    assert judged.agrees(verdict)
                    assert judged.failed == [
                        name for name in MEASURED_CONDITIONS if judged.values[name] < exact_fraction(taus[name])
                    ]
                    compared += 1
    assert compared > 500


def test_the_numbers_have_the_lungs_of_the_organs_stage(workflow_run, tmp_path):
    """Algorithm 1's lungs are made on the image: organs 60 rows lower change c4's number, and no other one.

    Where that turns c4's verdict, the stored verdict is told without numbers.
    """
    told = {}
    for name, lower in (("as stored", 0), ("lower", 60)):
        inputs = picture_inputs(workflow_run)
        folder = tmp_path / name / "organs"
        inputs["maps"] = [lower_lungs(path, folder, lower) if "/organs/" in path else path for path in inputs["maps"]]
        gallery.run(**inputs, **picture_outputs(tmp_path / name), **of_page(workflow_run))
        lines = [line for line in read_lines(tmp_path / name / "cases.jsonl") if line["kind"] == "case"]
        told[name] = [box["reason"] for line in lines for box in line["judged"]]
    of_lung = re.compile(r"overlap with a lung (\d\.\d+)")
    assert not any(MASKS_OUTDATED in reason for reason in told["as stored"])
    pairs = [pair for pair in zip(told["as stored"], told["lower"], strict=True) if MASKS_OUTDATED not in pair[1]]
    assert len(pairs) < len(told["lower"])
    assert all(of_lung.sub("", one) == of_lung.sub("", other) for one, other in pairs)
    with_number = [pair for pair in pairs if of_lung.search(pair[0])]
    assert len(with_number) > 5
    assert sum(one != other for one, other in with_number) >= 0.8 * len(with_number)


def test_numbers_of_boxes_at_one_place_stay_apart():
    picture = drawing.grey_to_rgb(
        pl.zeros(1, eager=True).to_numpy().astype("uint8").repeat(200 * 200).reshape(200, 200), 200
    )
    rows = [{"x1": 50, "y1": 50, "x2": 120, "y2": 120, "number": n, "kept": n < 3} for n in range(1, 6)]
    drawing.draw_boxes(picture, rows, 200)
    colours = drawing.KEPT_COLOUR, drawing.DROPPED_COLOUR
    kept, dropped = (tuple(round(255 * part) for part in drawing.to_rgb(colour)) for colour in colours)
    corners = [tuple(picture[y, x].tolist()) for y, x in ((52, 52), (52, 118), (118, 52), (118, 118))]
    assert corners == [kept, kept, dropped, dropped]


# --- the page of a finished run


class Page(HTMLParser):
    """Headings, images, links and tables (caption, rows of cell texts) of a page, and the widths of bars."""

    def __init__(self, text: str):
        super().__init__()
        self.headings: list[tuple[int, str]] = []
        self.images: list[dict] = []
        self.links: list[str] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.widths: list[list[float]] = []
        self.tags: list[str] = []
        self._into: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if tag == "img":
            self.images.append(attrs)
        elif tag == "a":
            self.links.append(attrs["href"])
        elif tag == "table":
            self.tables.append(("", []))
            self.widths.append([])
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("h1", "h2", "h3", "h4", "caption", "td", "th"):
            self._into = []
        elif tag == "br" and self._into is not None:
            self._into.append(" | ")
        elif tag == "div" and "bar" in attrs.get("class", "").split():
            self.widths[-1].append(float(re.search(r"width:([\d.]+)%", attrs["style"]).group(1)))

    def handle_data(self, data):
        if self._into is not None:
            self._into.append(data)

    def handle_endtag(self, tag):
        if self._into is None or tag not in ("h1", "h2", "h3", "h4", "caption", "td", "th"):
            return
        text, self._into = " ".join("".join(self._into).split()), None
        if tag == "caption":
            self.tables[-1] = (text, self.tables[-1][1])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append(text)
        else:
            self.headings.append((int(tag[1]), text))

    def table(self, caption: str) -> tuple[list[list[str]], list[float]]:
        """Return the rows without the head, and the widths of the bars, of the one table whose caption starts so."""
        (found,) = [i for i, (name, _) in enumerate(self.tables) if name.startswith(caption)]
        return self.tables[found][1][1:], self.widths[found]


@pytest.fixture(scope="module")
def page(workflow_run) -> Page:
    return Page((workflow_run / "results/index.html").read_text(encoding="utf-8"))


def test_the_page_is_light_and_fetches_nothing(workflow_run):
    for name in ("index.html", "costs.html"):
        text = (workflow_run / "results" / name).read_text(encoding="utf-8")
        assert len(text) < 5_000_000
        assert "://" not in re.sub(r"data:image/\w+;base64,[\w+/=]+", "", text)
        assert {"script", "link", "iframe", "object"}.isdisjoint(Page(text).tags)
        assert not re.search(r"@import|url\(", text)


@pytest.mark.parametrize("path", sorted((ROOT / "resources/page").glob("*.j2")), ids=lambda path: path.name)
def test_no_block_swallows_the_line_end_between_two_words(path):
    """`trim_blocks` drops the line end after a block, and with it the space, unless the block ends in `+%}`."""
    assert not re.findall(r"[\w.,;:]\{%[^%]*[^%+]%\}\n[\w(]", path.read_text(encoding="utf-8"))


def test_every_picture_has_words(page):
    assert len(page.images) > 5
    for image in page.images:
        assert len(image["alt"]) > 20
        assert image["src"].startswith("data:image/")


def test_headings_are_in_order(page):
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [text for level, text in page.headings if level == 2] == [
        "From images to pairs", "Reports and unknown words",
        "The dataset", "Recall", "Cases of each lesion type",
        "Comparison with the known truth", "Evaluation", "Costs", "Versions", "More of these results",
    ]  # fmt: skip


def test_the_contents_lead_to_every_section_and_nowhere_else(workflow_run):
    text = (workflow_run / "results/index.html").read_text(encoding="utf-8")
    contents = re.findall(r'href="#(\w+)"', re.search("<nav.*?</nav>", text, re.DOTALL)[0])
    assert contents == re.findall(r'<section id="(\w+)"', text)
    assert set(re.findall(r'href="#(\w+)"', text)) <= set(contents)


def test_the_page_names_all_four_systems_and_says_synthetic_beside_the_paper(workflow_run, page):
    text = (workflow_run / "results/index.html").read_text(encoding="utf-8")
    commands = [row[0] for row in page.table("Further results")[0]]
    assert {f"snakemake {name}" for name in ("evaluation", "semisyn", "medground", "radvlm")} <= set(commands)
    assert "Synthetic images and reports" in text.partition("</header>")[0]
    captions = [name for name, _ in page.tables]
    assert [name for name in captions if "paper" in name and "(synthetic)" not in name] == []


def test_every_page_of_the_embedded_cohort_says_that_its_data_are_synthetic(workflow_run):
    pages = [path for path in (workflow_run / "results").rglob("*.html") if "report" not in path.name]
    assert {"index.html", "costs.html"} <= {path.name for path in pages}
    assert [path for path in pages if "Synthetic images and reports:" not in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("source", ["embedded", "manifest"])
def test_experts_are_shown_whether_the_data_are_synthetic(source, tmp_path):
    cohort = {"source": source} | ({"manifest": "m.csv"} if source == "manifest" else {})
    options_by_stage = stage_options(read({"cohort": cohort}))
    stages = ("review", "review_queries", "semisyn_readers_pages")
    assert [options_by_stage[stage]["synthetic"] for stage in stages] == [source == "embedded"] * 3
    written = [tmp_path / name for name in ("plain.html", "labelled.html")]
    for path, synthetic in zip(written, (False, True), strict=True):
        data = {"expert": "A", "items": []}
        write_page(path, Form("Review", "review", False, ()), data, [], "draw fewer", synthetic)
    plain, labelled = (path.read_text(encoding="utf-8") for path in written)
    assert "synthetic" not in plain
    assert "<h1>Review (the embedded cohort: synthetic images and reports) <span>" in labelled


def test_a_real_cohort_is_not_called_synthetic_and_has_no_truth(workflow_run, tmp_path):
    made = {"index": str(tmp_path / "index.html"), "versions_table": str(tmp_path / "versions.tsv")}
    inputs = {name: path for name, path in page_inputs(workflow_run).items() if name != "truth_table"}
    render.run(**inputs, **made, **options() | {"source": "manifest"})
    text = Path(made["index"]).read_text(encoding="utf-8").partition("</style>")[2]
    assert "(synthetic)" not in text
    assert "Synthetic images and reports" not in text
    assert "known truth" not in text


def rows_of(path: Path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def without_commas(text: str) -> str:
    return text.replace(",", "")


def test_counts_and_funnel_are_those_of_the_tables(workflow_run, page):
    counts = rows_of(workflow_run / "results/tables/counts.tsv")
    shown, _ = page.table("Counts")
    assert [[row[0], *map(without_commas, row[1:])] for row in shown] == [
        [row["count"], row["default"], row["paper"] or "–"] for row in counts if "%" not in row["count"]
    ]
    shown, _ = page.table("Shares among the negatives")
    assert shown == [
        [row["count"].removesuffix(", %"), row["default"], row["configured"], row["paper"]]
        for row in counts
        if "%" in row["count"]
    ]
    assert len(shown) == len(LESIONS)  # cardiomegaly is always global; opacity has one more
    funnel = rows_of(workflow_run / "results/tables/funnel.tsv")
    stages = list(dict.fromkeys(row["stage"] for row in funnel))
    left = {row["stage"]: int(row["remaining"]) for row in funnel}
    shown, widths = page.table("Images left")
    assert [row[0] for row in shown] == stages
    assert widths == [pytest.approx(100 * left[stage] / left["input"], abs=0.01) for stage in stages]
    for stage_name, (_, text) in zip(stages, shown, strict=True):
        lost = [
            f"{r['images']} {r['reason']}: {r['meaning']}" for r in funnel if r["stage"] == stage_name and r["reason"]
        ]
        assert text.split(" | ") == [str(left[stage_name]), *lost]


def test_the_bars_of_lesion_types_are_those_of_the_table(workflow_run, page):
    rows = [r for r in rows_of(workflow_run / "results/tables/splits.tsv") if r["lesion"] != "total"]
    shares = {}
    for polarity in ("positive", "negative"):
        for who, ending in (("ours", ""), ("paper", "_paper")):
            sums = {
                lesion: sum(
                    int(row[f"{kind}_{polarity}{ending}"])
                    for row in rows if row["lesion"] == lesion
                    for kind in ("basic", "global", "lesion_inference")
                )
                for lesion in LESIONS
            }  # fmt: skip
            shares |= {(polarity, who, lesion): 100 * n / sum(sums.values()) for lesion, n in sums.items()}
    # the paper's own: 39,108 + 332 + 803 of its 135,291 positive pairs (the misprint set right)
    assert shares["positive", "paper", "cardiomegaly"] == pytest.approx(100 * 40243 / 135291)
    for polarity in ("positive", "negative"):
        shown, widths = page.table(f"{polarity.capitalize()} pairs")
        assert [row[0] for row in shown] == list(LESIONS)
        wanted = [shares[polarity, who, lesion] for lesion in LESIONS for who in ("ours", "paper")]
        assert widths == [pytest.approx(100 * share / max(shares.values()), abs=0.01) for share in wanted]
        for lesion, (_, text) in zip(LESIONS, shown, strict=True):
            assert text.startswith(f"{shares[polarity, 'ours', lesion]:.1f} % (")
            assert f"the paper {shares[polarity, 'paper', lesion]:.1f} % (" in text


def test_recall_and_truth_are_those_of_the_tables(workflow_run, page):
    table = rows_of(workflow_run / "results/tables/recall.tsv")
    shown, _ = page.table("Recall")
    # the average comes first, so that a phone shows it
    cells = [cell.split(" | ") for row in shown for cell in (*row[2:], row[1])]
    assert [row[0] for row in shown] == list(dict.fromkeys(row["thresholds"] for row in table))
    assert [cell[0] for cell in cells] == [row["recall"] or "–" for row in table]
    num_types = {
        name: sum(row["total"] != "0" for row in table if row["thresholds"] == name and row["lesion"] != "average")
        for name in {row["thresholds"] for row in table}
    }
    assert [cell[1] for cell in cells] == [
        "no study" if row["total"] == "0"
        else f"mean of {num_types[row['thresholds']]}" if row["lesion"] == "average"
        else f"{row['grounded']} of {row['total']}"
        for row in table
    ]  # fmt: skip
    # drawn pictures: nothing of the paper's stands beside them
    assert [cell[2:] for cell in cells] == [[] for _ in table]
    assert any(row["paper"] for row in table)
    truth = rows_of(workflow_run / "results/tables/truth.tsv")
    shown, _ = page.table("Comparison with the truth")
    assert [row[0] for row in shown] == list(dict.fromkeys(row["measure"] for row in truth))
    whole = [row for row in truth if row["lesion"] == "all"]
    assert [row[1] for row in shown] == [
        f"{float(r['value']):.2f} | {r['trials']}" if r["value"] else f"– | {r['trials']}" for r in whole
    ]


def test_the_gallery_says_of_each_box_what_the_verdict_says(workflow_run, page):
    results = workflow_run / "results"
    lines = [line for line in read_lines(results / "page/cases.jsonl") if line["kind"] == "case"]
    assert lines
    table = read_table(results / "masks/default/findings.parquet")
    for line in lines:
        of = table.filter((pl.col("image_id") == line["image_id"]) & (pl.col("target") == line["lesion"]))
        row = next(row for row in of.iter_rows(named=True) if cases.describe_outcome(row) in line["title"])
        verdicts = row["box_verdicts"]
        kept = sum(box["kept"] for box in line["judged"])
        assert [box["reason"].split(":")[0] for box in line["judged"]] == [
            "kept" if box["kept"] else "dropped" for box in line["judged"]
        ]
        if verdicts:
            assert line["counted"].startswith(f"{verdicts.count(0)} of {len(verdicts)} boxes")
            # what is drawn is what the sentence says
            told = re.search(r"(\d+) kept and (\d+) dropped boxes are drawn", line["counted"])
            drawn = tuple(map(int, told.groups())) if told else (verdicts.count(0), len(verdicts) - verdicts.count(0))
            assert drawn == (kept, len(line["judged"]) - kept)
            assert kept >= min(verdicts.count(0), 4)
        else:
            assert line["lesion"] == "cardiomegaly"
    shown = [image["alt"] for image in page.images]
    assert sum("numbered boxes" in alt for alt in shown) == sum(bool(line["judged"]) for line in lines)
    assert {line["lesion"] for line in lines} >= {"cardiomegaly", "edema"}


KEPT = "6 of 100 boxes kept at the threshold set x"


def report_lines(run: Path) -> list[dict]:
    return [line for path in sorted((run / "results/reports").glob("??.jsonl")) for line in read_lines(path)]


@pytest.mark.parametrize(
    ("verdicts", "drawn", "words"),
    [
        ([], [], ""),
        ([0, 0, 4], [1, 1, 0], "2 of 3 boxes kept at the threshold set x; all are drawn"),
        ([0] * 6 + [1] * 94, [1] * 4, f"{KEPT}; 4 kept and 0 dropped boxes are drawn"),
        ([0] * 6 + [1] * 94, [1, 1, 0, 0], f"{KEPT}; 2 kept and 2 dropped boxes are drawn"),
    ],
)  # fmt: skip
def test_how_many_boxes_are_drawn_is_told(verdicts, drawn, words):
    assert cases.summarize_boxes(verdicts, [{"kept": bool(is_kept)} for is_kept in drawn], "x") == words


def test_the_report_s_sentence_stands_beside_its_case(workflow_run):
    """It is the sentence that the finding names, as the reports stage has it; the page holds it, escaped."""
    results = workflow_run / "results"
    text = (results / "index.html").read_text(encoding="utf-8")
    said = {line["study_id"]: line["sentences"] for line in report_lines(workflow_run)}
    findings_ = read_table(results / "masks/default/findings.parquet").to_dicts()
    lines = [line for line in read_lines(results / "page/cases.jsonl") if line["kind"] == "case"]
    assert lines
    for line in lines:
        own = [row for row in findings_ if (row["image_id"], row["target"]) == (line["image_id"], line["lesion"])]
        own_sentences = (said[row["study_id"]][row["sentence_index"] - 1] for row in own)
        assert line["sentence"] in {" ".join(sentence.split()) for sentence in own_sentences}
        assert f"<blockquote>{escape(line['sentence'])}</blockquote>" in text


def test_no_sentence_is_quoted_where_report_text_is_withheld(workflow_run, tmp_path):
    """From the pictures on: the file beside the page holds none either."""
    own = of_page(workflow_run, withheld=True)
    gallery.run(**picture_inputs(workflow_run), **picture_outputs(tmp_path), **own)
    text = (tmp_path / "cases.jsonl").read_text(encoding="utf-8")
    said = [" ".join(s.split()) for line in report_lines(workflow_run) for s in line["sentences"]]
    assert not any(json.dumps(sentence)[1:-1] in text for sentence in said)
    made = {"index": str(tmp_path / "index.html"), "versions_table": str(tmp_path / "versions.tsv")}
    inputs = page_inputs(workflow_run) | {"cases_lines": str(tmp_path / "cases.jsonl")}
    render.run(**inputs, **made, **options())
    page = Path(made["index"]).read_text(encoding="utf-8")
    assert "<blockquote>" not in page
    assert not any(escape(sentence) in page for sentence in said)
    assert "withheld (<code>release.withhold</code>)" in page


@pytest.mark.parametrize(
    ("settings", "withheld"),
    [
        ({}, False),  # nobody's text
        ({"cohort": {"source": "mimic", "root": "."}}, True),
        ({"cohort": {"source": "mimic", "root": "."}, "release": {"withhold": ["pixels"]}}, False),
    ],
)
def test_report_text_is_withheld_as_the_release_says(settings, withheld):
    assert stage_options(read(settings))["page"]["withheld"] is withheld


def test_recall_is_set_beside_the_paper_s_with_what_is_compared(workflow_run, tmp_path):
    """Drawn pictures: no number of the paper's, and why. Another cohort: the paper's, and of what each is."""
    said = {}
    for source in ("embedded", "manifest"):
        made = {"index": str(tmp_path / f"{source}.html"), "versions_table": str(tmp_path / "versions.tsv")}
        render.run(**page_inputs(workflow_run), **made, **options() | {"source": source})
        said[source] = Path(made["index"]).read_text(encoding="utf-8")
    recall = {source: text.split('<section id="recall">')[1].split("</section>")[0] for source, text in said.items()}
    top = {source: text.split("</header>")[0] for source, text in said.items()}
    assert "28.2" not in top["embedded"] + recall["embedded"]
    assert "28.2" in top["manifest"]
    assert "paper 28.2" in recall["manifest"]
    assert "on MIMIC-CXR and with its engines" in top["manifest"]
    assert "This run is on a cohort given by a manifest" in recall["manifest"]
    assert "easier to read and to ground" in recall["embedded"]
    assert "None of its numbers measures" in " ".join(top["embedded"].split())
    assert "None of its numbers measures" not in " ".join(top["manifest"].split())


def test_the_page_leads_to_the_report_and_the_pairs(workflow_run):
    """Links are relative, and those to files of the bare run lead somewhere."""
    results = workflow_run / "results"
    found = re.findall(r'href="([^"#]+)"', (results / "index.html").read_text(encoding="utf-8"))
    assert "report.html" in found  # made by a command of its own, which stands beside it
    lines = [f"dataset/default/{split}.jsonl" for split in SPLITS]
    assert [link for link in found if link.startswith("dataset/")] == lines
    assert all((results / link).is_file() for link in lines)


@pytest.mark.slow
def test_the_page_and_explain_say_the_same_numbers(workflow_run):
    """The four numbers of every kept box of a case stand in a row of explain, which shows all of those."""
    results, compared = workflow_run / "results", 0
    for line in (line for line in read_lines(results / "page/cases.jsonl") if line["kind"] == "case"):
        told = explain(results, line["study_id"], ("default",), 40)[0]
        rows = {tuple(re.findall(r"(\d\.\d{3,}) (?:<|>=)", row)) for row in told.splitlines()}
        for box in line["judged"]:
            if box["kept"]:
                assert tuple(re.findall(r"\d\.\d{3,}", box["reason"])) in rows
                compared += 1
    assert compared > 5


@pytest.mark.parametrize(
    ("value", "threshold", "text"),
    [
        (0.9679, 0.25, "0.967"), (0.2496, 0.25, "0.249"), (0.25, 0.25, "0.250"), (0.29, 0.2, "0.290"),
        (0.01269, 0.0125, "0.0126"), (0.0, 0.2, "0.000"), (1.0, 0.1, "1.000"), (1e-7, 0.1, "0.000"),
    ],
)  # fmt: skip
def test_a_number_is_cut_with_as_many_digits_as_its_threshold(value, threshold, text):
    assert format_measure(value, threshold) == text


def test_what_is_not_made_is_left_out_with_the_command(workflow_run):
    text = (workflow_run / "results/index.html").read_text(encoding="utf-8")
    for command in ("<code>snakemake ablation</code>", "<code>snakemake evaluation</code>", "thresholds: {build:"):
        assert command in text
    assert "gIoU</th>" not in text


def test_versions_are_those_of_the_results(workflow_run, page):
    shown, _ = page.table("Code and settings behind the results")
    found = {row[0]: row[1:] for row in shown}
    assert found.keys() == {"reports", *STAGES, "masks default"}
    for name in STAGES:
        with Shard(workflow_run / f"results/{name}/00.h5") as shard:
            assert found[name][1:] == [shard.attrs["code_digest"], versions.short_digest(shard.attrs["settings"])]
    table = rows_of(workflow_run / "results/page/versions.tsv")
    weights = {row["name"]: row["version"] for row in table if row["kind"] == "weights"}
    assert len(weights) == 4
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in weights.values())
    assert {"numpy", "polars", "onnxruntime"} <= {row["name"] for row in table if row["kind"] == "package"}


# --- the same bytes, and what is there besides


def page_inputs(run: Path, thresholds: tuple[str, ...] = ("default",)) -> dict:
    results = run / "results"
    return {
        "maps": [str(path) for name in STAGES for path in sorted((results / name).glob("??.h5"))],
        "counts_table": str(results / "tables/counts.tsv"), "splits_table": str(results / "tables/splits.tsv"),
        "funnel_table": str(results / "tables/funnel.tsv"), "recall_table": str(results / "tables/recall.tsv"),
        "reading_table": str(results / "reports/reading.tsv"),
        "words_table": str(results / "reports/unknown_words.tsv"),
        "truth_table": str(results / "tables/truth.tsv"), "cases_lines": str(results / "page/cases.jsonl"),
        "reports": sorted(map(str, (results / "reports").glob("??.jsonl"))),
        "masks": sorted(map(str, (results / "masks/default").glob("??.h5"))),
        "test": [str(results / f"dataset/default/{SPLITS[2]}.jsonl")],
        "corrected": sorted(map(str, (results / "frames").glob("??.corrected.parquet"))),
        "excluded": [str(results / stage / "excluded.parquet") for stage in ("cohort", "frames", "reports")],
    }  # fmt: skip


def test_details_are_quoted_the_most_frequent_first():
    schema = ("image_id", "study_id", "stage", "reason", "detail")
    rows = [(f"i{n}", "", "cohort", "bad_row", f"line {n}") for n in range(1, 6)]
    rows += [("a", "", "cohort", "missing_file", ""), ("b", "", "cohort", "bad_row", "line 5")]
    cohort, frames = pl.DataFrame(rows, schema, orient="row"), pl.DataFrame([], dict.fromkeys(schema, pl.String))
    assert sections.exclusion_details([cohort, frames], 2) == [
        {"stage": "cohort", "reason": "bad_row", "images": 6, "details": [("line 5", 2), ("line 1", 1)], "more": 3}
    ]


def test_corrections_are_counted_the_most_frequent_first():
    rows = [(f"i{n}", "s", "turned") for n in range(3)] + [("i0", "s", "bits"), ("i9", "s", "a")]
    table = pl.DataFrame(rows, schema(CORRECTED), orient="row")
    assert sections.correction_counts(table, 2) == ([("turned", 3), ("a", 1)], 4)
    assert sections.correction_counts(table.clear(), 2) == ([], 0)


def test_corrected_headers_are_on_the_page(workflow_run, tmp_path):
    rows = [{"image_id": "i0", "study_id": "s", "correction": "codestream is 96 x 80, header says 80 x 96"}]
    write_corrected(tmp_path / "00.corrected.parquet", rows)
    inputs = page_inputs(workflow_run)
    inputs["corrected"] = [*inputs["corrected"], str(tmp_path / "00.corrected.parquet")]
    made = {"index": str(tmp_path / "index.html"), "versions_table": str(tmp_path / "versions.tsv")}
    render.run(**inputs, **made, **options())
    assert "codestream is 96 x 80, header says 80 x 96" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "headers were corrected" not in (workflow_run / "results/index.html").read_text(encoding="utf-8")


def options(extras: dict[str, str] | None = None) -> dict:
    engines = {"reports": "rules"} | dict.fromkeys(("organs", "anomaly", "anatomy", "boxes"), "lite")
    return {"thresholds": ["default"], "engines": engines, "source": "embedded", "extras": extras or {}}


def test_the_page_is_the_same_to_the_byte(workflow_run, tmp_path):
    made = {"index": str(tmp_path / "index.html"), "versions_table": str(tmp_path / "versions.tsv")}
    render.run(**page_inputs(workflow_run), **made, **options())
    assert Path(made["index"]).read_bytes() == (workflow_run / "results/index.html").read_bytes()


def picture_inputs(run: Path) -> dict[str, list[str]]:
    results = run / "results"
    inputs = {"maps": [str(path) for name in STAGES for path in sorted((results / name).glob("??.h5"))]}
    inputs["boxes"] = sorted(p for p in map(str, (results / "boxes").glob("??.parquet")))
    inputs["reports"] = sorted(map(str, (results / "reports").glob("??.jsonl")))
    inputs["masks"] = sorted(map(str, (results / "masks/default").glob("??.h5")))
    inputs["findings"] = sorted(map(str, (results / "masks/default").glob("??.findings.parquet")))
    return inputs


def picture_outputs(folder: Path) -> dict[str, str]:
    return {"parts": str(folder / "parts"), "cases_lines": str(folder / "cases.jsonl")}


def of_page(run: Path, *, withheld: bool = False) -> dict:
    chosen = read(json.loads((run / "mine.yaml").read_text()))
    more = {"quality": 85, "seed": chosen.seed, "withheld": withheld}
    return {"options": chosen.page, "thresholds": ["default"]} | more


def lower_lungs(path: str, folder: Path, rows: int) -> str:
    """Write a shard of organs whose masks lie that many rows lower; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / Path(path).name
    with Shard(path) as stored:
        labels = stored.labels()
        with ShardWriter(made, labels=labels, empty={"mask": ((len(labels), 512, 512), bool)}) as writer:
            for image_id in stored.ids:
                masks = stored.masks(image_id)
                writer.append(image_id, mask=np.stack([np.roll(masks[label], rows, axis=0) for label in labels]))
    return str(made)


def test_the_pictures_are_the_same_to_the_byte(workflow_run, tmp_path):
    results = workflow_run / "results"
    gallery.run(**picture_inputs(workflow_run), **picture_outputs(tmp_path), **of_page(workflow_run))
    files = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert files
    for name, content in files.items():
        assert (results / "page" / name).read_bytes() == content, name


@pytest.fixture
def evaluated(workflow_run, tmp_path, monkeypatch) -> dict[str, str]:
    """Results of an evaluation and an ablation in a working directory, as small as they can be: {path: digest}."""
    monkeypatch.chdir(tmp_path)
    columns = ("giou", "giou_low", "giou_high", "ciou", "ciou_low", "ciou_high", "n_acc", "n_acc_low", "n_acc_high")
    ours = dict.fromkeys(columns, 61.25) | {"source": "ours", "run": "mine", "lesion": "total", "text_strict": 70.0}
    paper = dict.fromkeys(columns) | {"giou": 71.2, "source": "paper", "run": "ROSALIA", "lesion": "total"}
    each = ours | {"lesion": "edema", "giou": 12.5}
    rows = [row | {"text_authors": None, "text_strict": row.get("text_strict")} for row in (each, ours, paper)]
    write_table("results/evaluation/comparison.tsv", pl.DataFrame(rows, infer_schema_length=None))
    lines = list(read_lines(workflow_run / "results/dataset/default/test.jsonl"))
    pairs = pl.DataFrame(
        {
            "pair_id": [line["pair_id"] for line in lines],
            "target": [line["target"] for line in lines],
            "type": [line["type"] for line in lines],
            "polarity": ["positive" if line["seg"] else "negative" for line in lines],
        }
    )
    write_table("results/evaluation/mine/pairs.parquet", pairs)
    write_table("results/evaluation/old/pairs.parquet", pairs.head(len(pairs) - 1))
    recall = read_table(workflow_run / "results/tables/recall.tsv")
    points = recall.select(
        "thresholds", "lesion", "recall", pl.col("recall").alias("recall_low"), pl.col("recall").alias("recall_high"),
        pl.col("grounded").alias("recalled"), pl.col("total").alias("studies"), pl.col("grounded").alias("yield"),
    )  # fmt: skip
    write_table("results/ablation/points.tsv", points)
    changes = [
        {"run": "mine", "persona": persona, "lesion": lesion, "measure": measure, "pairs": 9, "plain": 60.0,
         "reworded": 57.6, "change": -2.4, "change_low": low, "change_high": 0.26}
        for persona, low in (("layperson", -5.0), ("all personas", None)) for lesion in ("edema", "total")
        for measure in ("giou", "ciou", "n_acc", "text_strict", "text_authors")
    ]  # fmt: skip
    write_table("results/evaluation/paraphrases.tsv", pl.DataFrame(changes))
    for name in ("ablation/curves.png", "evaluation/masks.png", "training/mine/curves.png"):
        path = Path("results", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((workflow_run / "results/figures/default/distribution.png").read_bytes())
    return {str(path): "digest" for path in sorted(Path("results").rglob("*.*"))}


def test_evaluation_and_ablation_are_shown_where_they_are(workflow_run, evaluated, tmp_path):
    made = {"index": "index.html", "versions_table": "versions.tsv"}
    render.run(**page_inputs(workflow_run), **made, **options(evaluated))
    text = Path("index.html").read_text()
    page = Page(text)
    shown, _ = page.table("Runs of this project")
    assert shown == [
        ["mine", "ours", "61.2 | 61.2–61.2", "61.2 | 61.2–61.2", "61.2 | 61.2–61.2", "70.0", "–"],
        ["ROSALIA", "paper", "71.2", "–", "–", "–", "–"],
    ]
    changed, _ = page.table("Change by the wordings of each persona")
    assert changed == [
        ["mine, layperson", *["-2.4 | -5.0 to +0.3"] * 5],
        ["mine, all personas", *["-2.4"] * 5],
    ]
    alts = " ".join(image["alt"] for image in page.images)
    assert "mine: gIoU 61.2, cIoU 61.2, N-Acc 61.2, answers right (strict) 70.0" in alts
    assert "Course of the training mine" in alts
    assert "Recall and yield of each lesion type against each varied threshold" in alts
    assert "The run old was scored on other pairs" in text
    assert "The run mine was scored on other pairs" not in text
    assert "snakemake ablation</code>" not in text


def test_an_ablation_of_another_state_is_not_shown(workflow_run, evaluated, tmp_path):
    points = read_table("results/ablation/points.tsv")
    write_table("results/ablation/points.tsv", points.with_columns(pl.col("studies") + 1))
    made = {"index": "index.html", "versions_table": "versions.tsv"}
    render.run(**page_inputs(workflow_run), **made, **options(evaluated))
    assert "snakemake ablation</code>" in Path("index.html").read_text()


# --- costs


def test_costs_are_the_sums_of_the_benchmarks(workflow_run):
    jobs: dict[str, list[dict]] = {}
    for path in (workflow_run / "results/benchmarks").rglob("*.tsv"):
        if path.name != "costs.tsv":  # the costs' own, written when they were summed
            jobs.setdefault(path.relative_to(workflow_run / "results/benchmarks").parts[0], []).extend(rows_of(path))
    table = {row["stage"]: row for row in rows_of(workflow_run / "results/page/costs.tsv")}
    assert table.keys() == {*jobs, "total"}
    for name, rows in jobs.items():
        assert int(table[name]["jobs"]) == len(rows)
        assert float(table[name]["seconds"]) == pytest.approx(sum(float(row["s"]) for row in rows), abs=0.01)
        assert float(table[name]["max_rss_mb"]) == pytest.approx(max(float(row["max_rss"]) for row in rows), abs=0.01)
    assert float(table["total"]["seconds"]) == pytest.approx(sum(float(r["s"]) for rows in jobs.values() for r in rows))
    frames = table["frames"]
    assert int(frames["images"]) == 11
    assert float(frames["images_per_second"]) == pytest.approx(11 / float(frames["seconds"]), abs=0.01)
    page = Page((workflow_run / "results/costs.html").read_text())
    shown, widths = page.table("Seconds")
    most = max(float(table[name]["seconds"]) for name in jobs)
    assert widths == [pytest.approx(100 * float(table[row[0]]["seconds"]) / most, abs=0.01) for row in shown]


def test_a_job_too_short_to_be_measured(tmp_path):
    (tmp_path / "cohort").mkdir()
    (tmp_path / "cohort/cohort.tsv").write_text("s\th:m:s\tmax_rss\tcpu_time\n0.02\t0:00:00\tNA\tNA\n")
    (tmp_path / "zeta").mkdir()
    (tmp_path / "zeta/a.tsv").write_text("s\th:m:s\tmax_rss\tcpu_time\n2.0\t0:00:02\t10.5\t1.5\n")
    table = costs.sum_by_stage(costs.read_benchmarks(tmp_path), {"cohort": 4})
    assert table["stage"].to_list() == ["cohort", "zeta", "total"]
    assert table["max_rss_mb"].to_list() == [None, 10.5, 10.5]
    assert table["seconds"].to_list() == [0.02, 2.0, 2.02]
    assert table["images_per_second"].to_list() == [200.0, None, None]
    assert costs.sum_by_stage(costs.read_benchmarks(tmp_path / "nothing"), {}).height == 0


def test_numbers_read_like_numbers():
    values = ((1234567, 0), (0.25, 1), (None, 0), ("", 1))
    texts = [sections.format_number(value, digits) for value, digits in values]
    assert texts == ["1,234,567", "0.2", "–", "–"]


# --- in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium to open the page with")
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.mark.parametrize(("size", "phone"), [(DESK, False), (PHONE, True)], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["index.html", "costs.html"])
def test_nothing_is_wider_than_the_window(name, size, phone, chromium, workflow_run, tmp_path):
    path = workflow_run / "results" / name
    chromium.window(*size, phone=phone)
    chromium.requests.clear()
    chromium.open(path)
    chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert chromium.run("window.innerWidth") == size[0]
    assert chromium.run("document.documentElement.scrollWidth") <= size[0]
    # each picture was decoded, and stays inside; a chart scrolls inside its own frame
    wide = "[...document.images].filter(i => !i.closest('.chart') && i.getBoundingClientRect().right > innerWidth)"
    assert chromium.run(f"{wide}.length") == 0
    loaded = "Promise.all([...document.images].map(i => (i.loading = 'eager', i.decode().then(() => i.naturalWidth))))"
    assert all(width > 100 for width in chromium.run(loaded))
    assert chromium.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    chromium.screenshot(tmp_path / f"{name}-{size[0]}.png")
    assert [url for url in chromium.requests if not url.startswith(("data:", path.as_uri()))] == []
    assert chromium.complaints == []


@pytest.mark.parametrize("caption", ["Recall of grounding", "Comparison with the truth"])
def test_a_phone_shows_the_average_of_a_wide_table(caption, chromium, workflow_run):
    """Without scrolling: the column of the average, or of all, ends inside the window."""
    chromium.window(*PHONE, phone=True)
    chromium.open(workflow_run / "results/index.html")
    chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    table = f"[...document.querySelectorAll('table')].find(t => t.caption.textContent.startsWith('{caption}'))"
    head = f"[...{table}.querySelectorAll('th[scope=col]')].find(c => ['average', 'all'].includes(c.textContent))"
    assert chromium.run(f"{head}.getBoundingClientRect().right") <= PHONE[0]
    assert chromium.run(f"{head}.cellIndex") == 1
