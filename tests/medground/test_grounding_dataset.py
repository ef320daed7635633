"""The dataset: lines per split, baselines, pairs, and counts that add up, from all stages run on two sources."""

import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from cxr.base.tables import read_lines, read_table, write_lines
from cxr.medground.dataset.make_dataset import run
from cxr.medground.verification import verify
from medground_data import (
    SETTINGS,
    make_queries_of,
    make_regions_of,
    read_source,
    source_keys,
    verification_options,
)  # fmt: skip

SHARDS = ["00", "01"]
LABEL_KINDS = ("generic", "class", "replaced")
SPLITS = ("train", "validate", "test")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two sources of drawn cells, one of them for zero-shot, through every stage."""
    base = tmp_path_factory.mktemp("medground")
    for name, count in (("cells", 20), ("others", 6)):
        folder = base / name
        keys = source_keys(kind="cells", domain="nuclei")
        make_regions_of(read_source(folder, keys, shards=2, cells=count))
        make_queries_of(folder, name)
        (folder / "verified").mkdir()
        for shard in SHARDS:
            verify.run_shard(
                sources=str(folder / f"sources/{shard}.h5"), images=str(folder / "sources/images.parquet"),
                regions=str(folder / f"regions/{shard}.parquet"), queries=str(folder / f"queries/{shard}.jsonl"),
                output=str(folder / f"verified/{shard}.jsonl"),
                rejected=str(folder / f"verified/{shard}.rejected.parquet"), **verification_options(name),
            )  # fmt: skip
    return base


def options(**more) -> dict:
    names = {"source_names": ["cells", "others"], "uses": {"cells": "dataset", "others": "zero_shot"}, "stated": []}
    return names | {"per_image": SETTINGS.queries.per_image, "seed": 2026} | more


def joined(base: Path, out: Path, chosen: dict) -> Path:
    names = chosen["source_names"]

    def parts(folder, ending):
        return [str(base / name / folder / f"{shard}.{ending}") for name in names for shard in SHARDS]

    run(
        lines=[str(out / f"{name}.jsonl") for name in (*SPLITS, "zero_shot")],
        labels=[str(out / f"label_{kind}/{split}.jsonl") for kind in LABEL_KINDS for split in SPLITS],
        sensitivity=str(out / "pairs.jsonl"), units=str(out / "units.parquet"), statistics=str(out / "statistics.tsv"),
        counts=str(out / "conservation.tsv"), **chosen, sources=parts("sources", "h5"),
        images=[str(base / name / "sources/images.parquet") for name in names],
        regions=parts("regions", "parquet"), dropped=parts("regions", "dropped.parquet"),
        without=parts("regions", "excluded.parquet"), queries=parts("queries", "jsonl"),
        unasked=parts("queries", "unasked.parquet"), accepted=parts("verified", "jsonl"),
        rejected=parts("verified", "rejected.parquet"),
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def made(results, tmp_path_factory):
    return joined(results, tmp_path_factory.mktemp("dataset"), options())


def test_every_accepted_line_stands_in_one_file(results, made):
    accepted = [
        line
        for name in ("cells", "others")
        for s in SHARDS
        for line in read_lines(results / f"{name}/verified/{s}.jsonl")
    ]
    written = {name: list(read_lines(made / f"{name}.jsonl")) for name in (*SPLITS, "zero_shot")}
    ids = Counter(line["query_id"] for held in written.values() for line in held)
    assert ids == Counter(line["query_id"] for line in accepted)
    assert {line["source"] for line in written["zero_shot"]} == {"others"}
    for split in SPLITS:
        assert {line["split"] for line in written[split]} == {split}
        assert {line["source"] for line in written[split]} == {"cells"}


def test_counts_add_up_and_a_lost_line_fails_the_run(results, made, tmp_path):
    table = read_table(made / "conservation.tsv")
    assert (table["in"] == table["out"]).all()
    assert set(table["quantity"]) == {"images", "components", "wanted", "made", "accepted"}
    assert table.filter(quantity="wanted")["in"].sum() > 100
    broken = tmp_path / "broken"
    shutil.copytree(results, broken)
    path = broken / "cells/verified/00.jsonl"
    write_lines(path, list(read_lines(path))[1:])
    with pytest.raises(AssertionError, match="made add up"):
        joined(broken, tmp_path / "out", options())
    assert not (tmp_path / "out/train.jsonl").exists()


def test_a_lost_region_fails_the_run(results, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(results, broken)
    path = broken / "cells/queries/00.jsonl"
    write_lines(path, list(read_lines(path))[1:])
    with pytest.raises(AssertionError, match="wanted add up"):
        joined(broken, tmp_path / "out", options())


def test_an_image_that_vanished_fails_the_run(results, tmp_path):
    """Its regions, queries and rejects are gone from all tables but that of images."""
    broken = tmp_path / "broken"
    shutil.copytree(results, broken)
    gone = next(iter(read_lines(broken / "cells/verified/00.jsonl")))["image_id"]
    for path in sorted(broken.glob("cells/*/00.*")):
        if path.suffix == ".jsonl":
            write_lines(path, [line for line in read_lines(path) if line["image_id"] != gone])
        elif path.suffix == ".parquet":
            read_table(path).filter(pl.col("image_id") != gone).write_parquet(path)
    with pytest.raises(AssertionError, match="images add up"):
        joined(broken, tmp_path / "out", options())


def test_baselines_have_the_same_images_and_boxes(made):
    train = list(read_lines(made / "train.jsonl"))
    replaced = {line["query_id"]: line for line in read_lines(made / "label_replaced/train.jsonl")}
    assert replaced.keys() == {line["query_id"] for line in train}
    assert all(replaced[line["query_id"]]["boxes"] == line["boxes"] for line in train)
    words = {"nucleus", "nuclei", "rod", "rods"}
    assert {word for line in replaced.values() for word in line["query"].split(" and ")} <= words
    generic = list(read_lines(made / "label_generic/train.jsonl"))
    assert sorted(line["image_id"] for line in generic) == sorted({line["image_id"] for line in train})
    classes = list(read_lines(made / "label_class/train.jsonl"))
    for line in generic:
        own = [one for one in classes if one["image_id"] == line["image_id"]]
        assert sorted(at for one in own for at in one["regions"]) == line["regions"]


def test_pairs_hardly_overlap(made):
    lines = {line["query_id"]: line for name in ("test", "zero_shot") for line in read_lines(made / f"{name}.jsonl")}
    pairs = list(read_lines(made / "pairs.jsonl"))
    assert len(pairs) > 3
    assert max(Counter((pair["source"], pair["image_id"]) for pair in pairs).values()) <= 3
    for pair in pairs:
        (one,), (other,) = (lines[pair[which]]["boxes"] for which in ("first", "second"))
        width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
        shared = width * max(0, min(one[3], other[3]) - max(one[1], other[1]))
        areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
        assert shared / (sum(areas) - shared) <= 0.1
        assert not lines[pair["first"]]["trivial"]


def test_statistics_count_the_lines(made):
    table = {(row["source"], row["split"]): row for row in read_table(made / "statistics.tsv").to_dicts()}
    lines = list(read_lines(made / "train.jsonl"))
    row = table["total", "train"]
    assert (row["queries"], row["images"]) == (len(lines), len({line["image_id"] for line in lines}))
    assert row["single"] + row["subset"] + row["all"] == len(lines)
    assert row["words"] == pytest.approx(sum(len(line["query"].split()) for line in lines) / len(lines), rel=1e-6)
    units = read_table(made / "units.parquet")
    assert units["query_id"].to_list() == [line["query_id"] for line in read_lines(made / "test.jsonl")]


def test_a_source_more_changes_no_line_of_another(results, made, tmp_path):
    alone = options(source_names=["cells"], uses={"cells": "dataset"})
    out = joined(results, tmp_path, alone)
    for split in SPLITS:
        assert (out / f"{split}.jsonl").read_bytes() == (made / f"{split}.jsonl").read_bytes()


def test_it_is_made_the_same_twice(results, made, tmp_path):
    out = joined(results, tmp_path, options())
    for path in sorted(made.rglob("*.*")):
        assert path.read_bytes() == (out / path.relative_to(made)).read_bytes(), path.name
