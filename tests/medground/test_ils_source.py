"""The source ils on the embedded cohort: the resolver reads its queries in ILS's masks and zones (T4, T5)."""

import random
from collections import Counter

import pytest

from cxr.base.tables import read_lines, read_table
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.scene import build_scene
from cxr.medground.queries.forms import FormSearch
from cxr.medground.sources.read_sources import run
from cxr.medground.verification import verify
from medground_data import (
    facts_of,
    make_queries_of,
    make_regions_of,
    regions_of,
    source_keys,
    sources_options,
    verification_options,
)  # fmt: skip
from medground_resolver import resolve
from medground_scenes import NUMBERS
from medground_worlds import boxes_of, worlds


@pytest.fixture(scope="module")
def source(workflow_run, tmp_path_factory):
    """The source, its regions and queries, from a finished run of ILS."""
    folder, results = tmp_path_factory.mktemp("ils"), workflow_run / "results"
    (folder / "sources").mkdir()
    shards = sorted(path.stem for path in (results / "frames").glob("??.h5"))
    inputs = {
        stage: [str(results / f"{stage}/{shard}.h5") for shard in shards] for stage in ("frames", "organs", "anatomy")
    }
    masks = results / "masks/default"
    run(
        shards=[str(folder / "sources/00.h5")], images=str(folder / "sources/images.parquet"),
        excluded=str(folder / "sources/excluded.parquet"), **sources_options(source_keys(kind="ils"), "ils"),
        attrs={"stage": "medground_sources_read"}, cohort=str(results / "cohort/images.parquet"),
        findings=str(masks / "findings.parquet"),
        masks=[str(masks / f"{shard}.h5") for shard in shards], **inputs,
    )  # fmt: skip
    make_regions_of(folder, min_px=64)
    return folder, make_queries_of(folder, "ils")


def boxes(folder, lines):
    rows = {(row["image_id"], row["region"]): row for row in regions_of(folder)}
    sides = ("x1", "y1", "x2", "y2")
    return [{tuple(rows[line["image_id"], at][side] for side in sides) for at in line["regions"]} for line in lines]


def test_no_organ_is_said_to_lie_inside_another(source):
    """The heart's mask overlaps the lungs' on a projection; lesions do lie inside lungs."""
    folder, _ = source
    rows, answers = {}, set()
    for row in regions_of(folder):
        rows.setdefault(row["image_id"], []).append(row)
    for image in read_table(folder / "sources/images.parquet").iter_rows(named=True):
        held = rows[image["image_id"]]
        decider = Decider(build_scene(image, held, facts_of(folder), 512), NUMBERS)
        forms = FormSearch(decider, ("class", "relation"), random.Random(0), max_atoms=2).run()
        inside = [
            target for target, found in forms.by_target.items() if any(form.relation == "inside" for form in found)
        ]
        answers |= {held[one]["label"] for target in inside for one in target}
    assert answers
    assert not answers & {"cardiomegaly", "possible cardiomegaly", "heart", "left lung", "right lung"}


def test_the_resolver_reads_every_query_in_the_masks_of_ils(source):
    folder, lines = source
    known = worlds(folder, {line["image_id"] for line in lines}, least=64)
    misses = [
        (line["query"], line["regions"])
        for line, wanted in zip(lines, boxes(folder, lines), strict=True)
        if boxes_of(known[line["image_id"]], resolve(line["query"], known[line["image_id"]])) != wanted
    ]
    assert len(lines) >= 20
    assert len(misses) <= 0.005 * len(lines), misses


def test_a_tentative_finding_is_never_worded_as_certain(source):
    folder, lines = source
    labels = {(row["image_id"], row["region"]): row["label"] for row in regions_of(folder)}
    for line in lines:
        named = [atom for atom in line["logic"]["atoms"] if atom.startswith("class:")]
        unsure = [labels[line["image_id"], at].startswith("possible") for at in line["regions"]]
        if named and any(unsure):
            assert "possible" in named[0], line["query"]


def test_structures_and_splits_are_the_cohorts(source, workflow_run):
    folder, _ = source
    images = read_table(folder / "sources/images.parquet")
    cohort = dict(read_table(workflow_run / "results/cohort/images.parquet").select("image_id", "split").iter_rows())
    assert all(cohort[row["image_id"]] == row["split"] for row in images.to_dicts())
    counts = Counter(row["label"] for row in regions_of(folder))
    assert counts["heart"] >= len(images)
    assert counts["right lung"] >= len(images)


def test_its_queries_pass_and_are_judged_by_their_places_alone(source, tmp_path):
    """The anomaly map made the masks: a judge that looked at it would find what it is shown."""
    folder, lines = source
    verify.run_shard(
        sources=str(folder / "sources/00.h5"), images=str(folder / "sources/images.parquet"),
        regions=str(folder / "regions/00.parquet"), queries=str(folder / "queries/00.jsonl"),
        output=str(tmp_path / "00.jsonl"), rejected=str(tmp_path / "r.parquet"), **verification_options(),
    )  # fmt: skip
    gone = read_table(tmp_path / "r.parquet")
    assert len(gone) <= 0.01 * len(lines), gone
    checks = [line["checks"] for line in read_lines(tmp_path / "00.jsonl")]
    assert {one["verdict"] for one in checks} == {"grounded", "unjudged"}
    assert all(one["read"] for one in checks if one["verdict"] == "grounded")
    assert {name for one in checks for seen in one["observed"] for name in seen} == {"zones"}
