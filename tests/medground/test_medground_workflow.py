"""MedGround with Snakemake: any number of shards and cores, kills in every rule, the same bytes (T18, section 12)."""

import csv
import re
import shutil
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest

from conftest import snakemake, write_settings
from cxr.base.tables import read_lines, read_table
from declared_tables import differing, path_of
from killed_runs import IN_PLACE, KILL, killed_run
from lvit_tree import BOTH, LEFT, tree
from slurm_runs import with_fault
from whole_runs import copy_repository

TARGETS = ("medground", "medground_scoring")
FORMATS = ["messages", "coco", "refcoco"]


def manifest(folder: Path) -> Path:
    """Write a source of six pictures, of which one has no mask, one is a copy and one has specks alone."""
    folder.mkdir(parents=True)
    rows = []
    for at in range(6):
        draw = np.random.default_rng(0 if at == 3 else at)
        picture, mask = draw.integers(90, 110, (96, 128), np.uint8), np.zeros((96, 128), np.uint8)
        for number in range(0 if at == 4 else 4):
            x, y = 8 + 30 * number, 10 + 8 * number
            cv2.circle(mask, (x + 8, y + 8), 1 if at == 5 else 4 + 2 * number, 255, -1)
        picture[mask > 0] = 200
        for name, plane in (("p", picture), ("m", mask)):
            cv2.imwrite(str(folder / f"{name}{at}.png"), plane)
        split = ("train", "validate", "test")[at % 3]
        rows.append({"image_path": f"p{at}.png", "mask_path": f"m{at}.png", "split": split, "image_id": f"i{at}"})
    with open(folder / "m.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "m.csv"


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    """Settings: twelve drawn pictures, six of a folder, a model that is tuned for four updates."""
    path = manifest(tmp_path_factory.mktemp("given") / "pictures")
    mine = {"kind": "folder", "manifest": str(path), "domain": "nuclei", "classes": {"dot": {}}}
    sources = {
        "cells": 12,
        "size": 128,
        "shards": 3,
        "sets": {"cells": {"kind": "cells", "domain": "nuclei"}, "mine": mine},
    }
    tuning = {"tiny": {"updates": 4, "batch": 4, "micro_batch": 4}}
    answers = {"sets": {"medground_test": "medground:dataset/test"}, "max_new_tokens": 24}
    return {
        "replicates": 100,
        "medground": {"sources": sources, "dataset": {"export": FORMATS}},
        "vlm": {"tuning": tuning, "answers": answers},
    }


def shards_of(given: dict, shards: int) -> dict:
    """The settings with another number of shards."""
    medground = given["medground"]
    return given | {"medground": medground | {"sources": medground["sources"] | {"shards": shards}}}


def files(run: Path) -> dict[str, bytes]:
    """{path: bytes} of all that does not stand by shards: dataset, exports, gallery, rates, answers, scores."""
    folders = ("medground/dataset", "medground/scoring", "vlm", "medground/verification")
    paths = (path for folder in folders for path in (run / "results" / folder).rglob("*") if path.is_file())
    names = {path.relative_to(run / "results").as_posix(): path for path in paths}
    kept = {name: path for name, path in names.items() if not Path(name).stem.isdigit() or "dataset" in name}
    return {name: path.read_bytes() for name, path in kept.items() if ".rejected." not in name}


@pytest.fixture(scope="module")
def run(tmp_path_factory, given) -> Path:
    """One finished run, three shards, two cores. Tests must not write in it."""
    folder = write_settings(tmp_path_factory.mktemp("medground") / "run", given)
    snakemake(folder, *TARGETS)
    return folder


@pytest.mark.slow
def test_every_count_adds_up_and_every_table_is_declared(run):
    counts = read_table(run / "results/medground/dataset/conservation.tsv")
    assert (counts["in"] == counts["out"]).all()
    assert set(counts["source"]) == {"cells", "mine"}
    gone = read_table(run / "results/medground/sources/mine/excluded.parquet")
    assert dict(gone.select("image_id", "reason").iter_rows()) == {"i3": "duplicate_image", "i4": "empty_mask"}
    told = counts.filter(source="mine", quantity="images")["parts"].to_list()
    assert sum("no_regions:1" in one for one in told) == 1  # the picture of specks
    for path in (run / "results").rglob("*"):
        if path.suffix in (".tsv", ".parquet") and "benchmarks" not in path.parts and "export" not in path.parts:
            declared = path_of(path.relative_to(run).as_posix())
            assert declared, path
            assert not differing(path, declared)


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "cores"), [(1, 1), (7, 2), (3, 1)])
def test_any_number_of_shards_and_cores_gives_the_same_bytes(run, given, tmp_path, shards, cores):
    write_settings(tmp_path, shards_of(given, shards))
    snakemake(tmp_path, *TARGETS, cores=cores)
    assert len(files(run)) > 40
    assert files(tmp_path) == files(run)


def torn(folder: Path, run: Path) -> list[str]:
    """Return the finished run's files that are there, but with other bytes; temporary names and checkpoints are no
    such files.
    """
    there = files(folder)
    return sorted(name for name, held in files(run).items() if there.get(name, held) != held)


@pytest.mark.slow
def test_killed_in_every_rule_it_ends_in_the_same_bytes(run, given, dry_run, tmp_path):
    root = copy_repository(tmp_path / "copy")
    folder = write_settings(tmp_path / "run", given)
    rules = sorted(name for name in dry_run(folder, *TARGETS) if name not in (*TARGETS, "medground_dataset"))
    assert len(rules) > 12
    for name in rules:
        with_fault(root, name, KILL, tmp_path / f"{name}.killed")
    ends = []
    for _ in range(len(rules) + 1):
        done = killed_run(root, folder, *TARGETS)
        ends.append(done.returncode)
        assert not torn(folder, run)
        if not done.returncode:
            break
    assert ends == [-signal.SIGKILL] * len(rules) + [0], done.stderr[-3000:]
    assert sorted(path.stem for path in tmp_path.glob("*.killed")) == rules
    assert files(folder) == files(run)
    assert not list((folder / "results").rglob("*.part"))


@pytest.mark.slow
def test_a_stage_that_writes_in_place_is_seen_by_the_kill(run, given, tmp_path):
    """The sabotage of the test above: half a file has its name, and the next run would take it for whole."""
    root = copy_repository(tmp_path / "copy")
    folder = Path(shutil.copytree(run, tmp_path / "run", symlinks=True))
    for name in (folder / "results/medground/verification").glob("*.*"):
        name.unlink()
    with_fault(root, "medground_verification_rates", IN_PLACE, tmp_path / "killed")
    assert killed_run(root, folder, "medground_verification").returncode == -signal.SIGKILL
    assert (tmp_path / "killed").exists()
    (found,) = torn(folder, run)
    assert found == "medground/verification/rejected.parquet"
    assert killed_run(root, folder, "medground_verification").returncode == 0
    assert not torn(folder, run)


@pytest.mark.slow
def test_statements_go_from_a_tree_to_zero_shot_scores_beside_the_rules_queries(given, tmp_path):
    """The same tree twice, as sentences and as queries by rules; no training reads either."""
    middle = LEFT.replace("all left", "lower left")
    tree(
        tmp_path / "QaTa", Train=[("t1", BOTH, ("left", "right"))],
        Test=[("agrees", BOTH, ("left", "right")), ("one", middle, ("right",)), ("mirrored", middle, ("left",)),
              ("silent", None, ("left",))],
    )  # fmt: skip
    qata = {"kind": "lvit", "folder": "QaTa", "use": "zero_shot", "domain": "cxr"}
    qata |= {"classes": {"infected area": {"many": "infected areas"}}}
    sets = {"cells": {"kind": "cells", "domain": "nuclei"}, "QaTa": qata | {"queries": "statements"}}
    sources = given["medground"]["sources"] | {"sets": sets | {"QaTa_rules": qata}, "cells": 6}
    answers = {"max_new_tokens": 8}
    medground = given["medground"] | {"sources": sources, "dataset": {"export": []}}
    write_settings(tmp_path, given | {"medground": medground, "vlm": given["vlm"] | {"answers": answers}})
    snakemake(tmp_path, *TARGETS)
    part = tmp_path / "results/medground"
    lines = list(read_lines(part / "dataset/zero_shot.jsonl"))
    stated = [line["image_id"] for line in lines if line["source"] == "QaTa"]
    assert stated == ["agrees", "one", "t1"]
    assert {line["source"] for line in lines} == {"QaTa", "QaTa_rules"}
    assert {line["source"] for line in read_lines(part / "dataset/train.jsonl")} == {"cells"}
    counts = read_table(part / "dataset/conservation.tsv")
    assert (counts["in"] == counts["out"]).all()
    (wanted,) = counts.filter(source="QaTa", split="test", quantity="wanted")["parts"]
    assert wanted == "made:2 unasked:2"
    rates = read_table(part / "verification/passrate.tsv").filter(source="QaTa", split="all")
    assert rates.select("accepted", "passed").rows() == [(3, 0)] * 3
    scores = read_table(part / "scoring/comparison.tsv").filter(table="zero_shot", by="ours", model="medground")
    assert dict(scores.select("source", "number").iter_rows()) == {
        "QaTa": 3, "QaTa_rules": len(lines) - 3, "total": len(lines),
    }  # fmt: skip


def fill(folder: Path, votes: dict[str, int]) -> None:
    """Write the sheets of experts, of whom as many find a query good as ``votes`` says."""
    items = read_table(folder / "results/review/queries/items.parquet")
    (folder / "filled").mkdir()
    for at, ((expert,), part) in enumerate(sorted(items.group_by("expert"))):
        with open(folder / f"filled/review_{expert}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["item", "verdict", "note", "seconds", "page"])
            for row in part.iter_rows(named=True):
                said = "good" if at < votes[row["unit"]] else "ambiguous"
                writer.writerow([row["item"], said, "", 4, row["page"]])


@pytest.mark.slow
def test_from_the_experts_pages_to_the_audited_scores(run, given, tmp_path):
    """Review of queries, filled sheets, review_merge, medground_scoring; no query or training is made again."""
    folder = Path(shutil.copytree(run, tmp_path / "run", symlinks=True))
    review = {"items": "queries", "experts": ["A", "B", "C"], "rule": "majority"}
    write_settings(folder, given | {"review": review})
    refused = snakemake(folder, "review_merge", check=False)
    assert "review.sheets is empty: give the experts' filled sheets" in refused.stderr
    snakemake(folder, "review")
    lines = list(read_lines(folder / "results/medground/dataset/test.jsonl"))
    votes = {line["query_id"]: at % 4 for at, line in enumerate(lines)}
    fill(folder, votes)
    write_settings(folder, given | {"review": review | {"sheets": ["filled"]}})
    snakemake(folder, "review_merge")
    audit = read_table(folder / "results/review/queries/audit.parquet")
    assert dict(audit.select("query_id", "good").iter_rows()) == votes
    good = {name for name, count in votes.items() if count >= 2}
    assert set(audit.filter("accepted")["query_id"]) == good
    ours = read_table(folder / "results/review/queries/table7.tsv").filter(by="ours")
    assert dict(ours.select("source", "accepted").iter_rows())["total"] == len(good)

    shutil.copyfile(folder / "results/review/queries/audit.parquet", tmp_path / "audit.parquet")
    medground = given["medground"] | {"audit": str(tmp_path / "audit.parquet")}
    write_settings(folder, given | {"medground": medground, "review": review | {"sheets": ["filled"]}})
    before = files(folder)
    done = snakemake(folder, *TARGETS, "review_merge")
    again = set(re.findall(r"^Finished jobid: \d+ \(Rule: ((?:medground|vlm|review)_\w+)\)", done.stderr, re.MULTILINE))
    assert "medground_scoring_run" in again
    scores = {f"medground_scoring_{name}" for name in ("run", "comparison", "chart")}
    assert again <= {*scores, *TARGETS, "medground_dataset"}
    after = files(folder)
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    assert all(name.startswith("medground/scoring/") for name in changed)
    scored = read_table(folder / "results/medground/scoring/medground/queries.parquet")
    assert set(scored["query_id"]) == good
