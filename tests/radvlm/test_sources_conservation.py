"""Every row of a source's tables is in the results or is left out with a reason, each counted on its own."""

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest

from cxr.base.conservation import counted_rows
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table
from cxr.radvlm.sources import read_own as own_source
from cxr.radvlm.sources.facts import SourceRecords, conservation_table
from cxr.radvlm.sources.read_own import read_own
from radvlm_mix import OPTIONS, SMALLEST, inputs, read_all
from radvlm_trees import (
    chexpert_plus_tree,
    chexpert_tree,
    found,
    imagenome_tree,
    mimic_images,
    ms_cxr_tree,
    options,
    padchest_tree,
    picture,
    vindr_labels,
    vindr_tree,
    write_csv,
)


def test_parts_that_do_not_add_up_stop_the_job():
    assert counted_rows("there", "rows", 3, {"kept": 1, "no_area": 2, "bad_row": 0}) == [
        ("rows", "all", 3), ("rows", "kept", 1), ("rows", "no_area", 2),
    ]  # fmt: skip
    assert counted_rows("there", "rows", 0, {}) == [("rows", "all", 0)]
    with pytest.raises(AssertionError, match=r"^there: rows: 3 in, 2 accounted for \(kept 1, no_area 1\)"):
        counted_rows("there", "rows", 3, {"kept": 1, "no_area": 1})
    with pytest.raises(AssertionError, match="there: rows: 1 in, 1 accounted for"):
        counted_rows("there", "rows", 1, {"kept": 2, "no_area": -1})


def of_source(tmp_path, kind: str) -> SourceRecords:
    known = mimic_images(tmp_path / "images.parquet")
    trees = {
        "chexpert": chexpert_tree, "chexpert_plus": chexpert_plus_tree, "vindr": vindr_tree, "ms_cxr": ms_cxr_tree,
        "imagenome": imagenome_tree, "padchest_gr": padchest_tree,
    }  # fmt: skip
    tree = trees[kind](tmp_path / "tree")
    if kind == "vindr":
        vindr_labels(tree)
    return found(options(kind, tree), known if kind in ("ms_cxr", "imagenome") else "")[2]


WANTED = {
    "chexpert": {"images": {"all": 8, "kept": 5, "bad_row": 1, "duplicate_image": 1, "not_frontal": 1}},
    "chexpert_plus": {
        "images": {"all": 5, "kept": 3, "no_split": 1, "not_frontal": 1}, "labels": {"all": 2, "kept": 2},
        "texts": {"all": 3, "kept": 2, "empty_report": 1},
    },
    "vindr": {
        "box": {"all": 10, "kept": 6, "missing_file": 1, "no_area": 1, "no_finding": 2},
        "fused boxes": {"all": 3, "kept": 3}, "images": {"all": 4, "kept": 3, "missing_file": 1},
        "labels": {"all": 7, "kept": 4, "bad_row": 1, "no_image": 2},
    },
    "ms_cxr": {
        "images": {"all": 4, "kept": 3, "no_image": 1},
        "phrase": {"all": 6, "kept": 3, "no_area": 1, "no_image": 1, "shape_mismatch": 1},
    },
    "imagenome": {
        "images": {"all": 4, "kept": 2, "listed": 1, "no_image": 1},
        "region": {"all": 12, "kept": 4, "listed": 3, "no_area": 2, "no_image": 3},
    },
    "padchest_gr": {
        "images": {"all": 5, "kept": 2, "no_image": 1, "no_split": 1, "not_frontal": 1},
        "phrase": {"all": 3, "kept": 2, "no_area": 1}, "texts": {"all": 2, "kept": 2},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", WANTED)
def test_every_row_of_a_source_is_accounted_for(tmp_path, kind):
    told: dict[str, dict[str, int]] = {}
    for what, outcome, number in conservation_table(of_source(tmp_path, kind).conservation_rows(kind)).iter_rows():
        told.setdefault(what, {})[outcome] = number
    assert told == WANTED[kind]


@pytest.mark.parametrize("kind", ["vindr", "ms_cxr", "imagenome", "padchest_gr"])
def test_a_box_that_gets_lost_stops_the_job(tmp_path, monkeypatch, kind):
    original, done = SourceRecords.add_boxes, []

    def losing(held, image_id, name, text, corners, *rest, **more):
        done.append(image_id)
        return original(held, image_id, name, text, corners[1:] if len(done) == 1 else corners, *rest, **more)

    monkeypatch.setattr(SourceRecords, "add_boxes", losing)
    with pytest.raises(AssertionError, match=rf"^radvlm_sources, {kind}: (fused boxes|box|phrase|region): \d+ in, "):
        of_source(tmp_path, kind)


@pytest.mark.parametrize("kind", ["chexpert", "chexpert_plus", "padchest_gr"])
def test_a_row_that_leaves_without_a_reason_stops_the_job(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(SourceRecords, "exclude", lambda self, *reason, **more: None)
    with pytest.raises(AssertionError, match=rf"^radvlm_sources, {kind}: images: \d in, \d accounted for"):
        of_source(tmp_path, kind)


def test_a_label_of_no_study_in_use_is_counted(tmp_path):
    tree = chexpert_plus_tree(tmp_path)
    file = tree / "chexbert_labels/report_fixed.json"
    first, *rest = file.read_text().splitlines()
    other = json.dumps(json.loads(first) | {"path_to_image": "elsewhere.jpg"})
    file.write_text("\n".join([first, *rest, first, other]) + "\n")
    held = found(options("chexpert_plus", tree))[2]
    assert [row for row in held.conservation_rows("x") if row[0] == "labels"] == [
        ("labels", "all", 4), ("labels", "kept", 2), ("labels", "bad_row", 1), ("labels", "no_image", 1),
    ]  # fmt: skip


# ---- boxes without a name ------------------------------------------------------------------------------------------


def test_a_box_without_a_name_is_left_out_as_an_unknown_label(tmp_path):
    header = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]")
    rows = [("a.png", "Mass", 1, 2, 10, 10), ("a.png", "", 5, 5, 20, 20), ("a.png", "  ", 5, 5, 20, 20)]
    write_csv(tmp_path / "nih.csv", header, rows)
    picture(tmp_path / "a.png")
    _, facts, held = found(options("nih", tmp_path / "nih.csv"))
    assert set(facts["name"]) == {"Mass"}
    assert [(row["reason"], row["image_id"], row["detail"]) for row in held.excluded] == [
        ("unknown_label", "a", "a box without a name")
    ] * 2
    assert [row[1:] for row in held.conservation_rows("nih") if row[0] == "box"] == [
        ("all", 3), ("kept", 1), ("unknown_label", 2),
    ]  # fmt: skip


def test_a_class_of_vindr_or_a_region_without_a_name_too(tmp_path):
    tree = vindr_tree(tmp_path / "vindr")
    table = tree / "annotations/annotations_train.csv"
    table.write_text(table.read_text().replace("Nodule/Mass", ""))
    _, facts, held = found(options("vindr", tree))
    assert "" not in set(facts["name"])
    assert [row["reason"] for row in held.excluded].count("unknown_label") == 2
    assert not [what for what in held.counts if what.startswith("unknown_label")]
    graphs = imagenome_tree(tmp_path / "graphs")
    for path in graphs.rglob("*_SceneGraph.json"):
        path.write_text(path.read_text().replace("right lung", ""))
    _, facts, held = found(options("imagenome", graphs), mimic_images(tmp_path / "images.parquet"))
    assert "" not in set(facts["name"])
    assert [row["reason"] for row in held.excluded].count("unknown_label") == 2


# ---- the source own ------------------------------------------------------------------------------------------------


@pytest.fixture
def shard(workflow_run, tmp_path):
    """The files of a shard with findings, whose masks are drawn: large ones, and empty ones of one image, its name."""
    results = workflow_run / "results"
    given = next(
        held
        for path in sorted((results / "frames").glob("??.h5"))
        if read_table((held := inputs(results, path.stem))["findings"]).filter(pl.col("mask_id") != "").height
    )
    table = read_table(given["findings"]).filter(pl.col("mask_id") != "")
    image = table["image_id"].sort()[0]
    empty = set(table.filter(image_id=image)["mask_id"])
    with ShardWriter(tmp_path / "masks.h5", key="mask_id") as writer:
        for mask_id in sorted(set(table["mask_id"])):
            mask = np.zeros((512, 512), bool)
            mask[100 : 100 + (0 if mask_id in empty else 60), 200:260] = True
            writer.append(mask_id, mask=mask)
    return given | {"masks": str(tmp_path / "masks.h5")}, image


def test_own_rows_are_accounted_for(workflow_run, tmp_path):
    made = read_all(workflow_run / "results", tmp_path)
    told = {(what, outcome): number for what, outcome, number in read_table(made / "conservation.tsv").iter_rows()}
    facts = read_table(made / "facts.parquet")
    assert told["images", "kept"] == read_table(made / "images.parquet").height
    assert told["images", "all"] == sum(
        read_table(path).height for path in (workflow_run / "results/cohort").glob("??.parquet")
    )
    assert told["region", "all"] == facts.filter(kind="region").height + told.get(("region", "no_area"), 0)
    assert told["box", "kept"] == facts.filter(kind="box").select("image_id", "name").n_unique()
    assert told["labels", "kept"] == facts.filter(kind="label")["image_id"].n_unique()
    for what in ("images", "labels", "texts", "region", "box", "phrase"):
        assert told[what, "all"] == sum(number for (of, name), number in told.items() if of == what and name != "all")


def test_a_finding_whose_mask_leaves_no_box_is_told(shard):
    files, image = shard
    table = read_table(files["findings"]).filter(pl.col("mask_id") != "", pl.col("word") != "")
    held = read_own(OPTIONS, SMALLEST, **files)
    told = {(what, outcome): number for what, outcome, number in held.conservation_rows("own")}
    gone = [row for row in held.excluded if row["reason"] == "no_boxes"]
    assert {row["image_id"] for row in gone} == {image}
    assert not [row for row in held.facts if row["image_id"] == image and row["kind"] in ("box", "phrase")]
    assert Counter(row["detail"] for row in gone) == {
        f"{kind}: the mask is empty": told[kind, "no_boxes"] for kind in ("box", "phrase")
    }
    assert told["phrase", "no_boxes"] == table.filter(image_id=image)["sentence_index"].n_unique() > 0
    assert told["phrase", "all"] == table.select("image_id", "sentence_index").n_unique()


def test_a_finding_that_gets_lost_stops_the_job(shard, monkeypatch):
    files, _ = shard
    monkeypatch.setattr(own_source, "_add_finding", lambda *finding: None)
    with pytest.raises(AssertionError, match=r"^radvlm_sources, own: (box|phrase): \d+ in, 0 accounted for"):
        read_own(OPTIONS, SMALLEST, **files).conservation_rows("own")
