"""Tables beside the paper's values, the funnel, and the proof that nothing is lost: exact values on tiny inputs."""

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from cxr.base.errors import StoreError
from cxr.base.exclusions import STAGES
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import EXCLUDED_SCHEMA, read_table, write_excluded, write_lines, write_table
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS, SPLITS
from cxr.reporting.tables import counts, paper
from cxr.reporting.tables.counts import run_counts
from cxr.reporting.tables.paper import run_recall
from cxr.workflow.code_digest import RESOURCES

SHARES = dict.fromkeys(LUNG_LESIONS, 0.1)
NUMBERS = paper.read_paper_tables()


def pair(split: str = "train", target: str = "edema", kind: str = "basic", mask: str | None = "m1", image: str = "i1"):
    return {
        "split": split,
        "target": target,
        "type": kind,
        "seg": mask is not None,
        "mask_id": mask,
        "image_id": image,
        "study_id": f"s-{image}",
    }


# The paper's numbers


@pytest.mark.parametrize("split", SPLITS)
def test_paper_splits_add_up_once_the_misprint_is_corrected(split):
    rows = NUMBERS.splits[split]
    assert list(rows) == [*LESIONS, "total"]
    for lesion, row in rows.items():
        assert row["total"] == sum(number for column, number in row.items() if column != "total"), lesion
    for column in rows["total"]:
        assert rows["total"][column] == sum(rows[lesion][column] for lesion in LESIONS), column


def test_paper_totals_round_to_what_the_text_says():
    totals = [NUMBERS.splits[split]["total"] for split in SPLITS]
    assert sum(row["total"] for row in totals) == 1_065_621
    assert sum(row[column] for row in totals for column in row if column.endswith("positive")) == 135_291
    assert sum(row[column] for row in totals for column in row if column.endswith("negative")) == 930_330


def test_paper_recall_averages():
    for name in ("default", "half"):
        values = [NUMBERS.recall[name][lesion] for lesion in LESIONS if lesion != "cardiomegaly"]
        # half: 47.35, printed 47.3
        assert abs(sum(values) / 6 - NUMBERS.recall[name]["average"]) <= 0.05 + 1e-9
    assert NUMBERS.recall["default"]["average"] == 28.2
    assert NUMBERS.notes["recall", "default", "average"] == "printed as 28.3"


def test_paper_numbers_are_those_of_the_specification(shared):
    theirs = yaml.safe_load((shared / "spec" / "ils_tables.yaml").read_text(encoding="utf-8"))
    printed = yaml.safe_load((RESOURCES / "paper_tables.yaml").read_text(encoding="utf-8"))
    for split, name in (("train", "table10_train"), ("validate", "table11_val"), ("test", "table12_test")):
        rows = {key: row for key, row in theirs["splits"][name].items() if key != "corrected"}
        assert printed["splits"][split] == rows
    corrected = theirs["splits"]["table11_val"]["corrected"]["effusion"]
    assert list(NUMBERS.splits["validate"]["effusion"].values()) == corrected
    assert printed["recall"] == {
        "default": theirs["table8_recall"]["default_tau"],
        "half": theirs["table8_recall"]["half_tau"],
    }


def test_a_misprint_that_is_not_there_is_refused(tmp_path):
    data = yaml.safe_load((RESOURCES / "paper_tables.yaml").read_text(encoding="utf-8"))
    data["printed_wrong"][0]["printed"] = 415
    (tmp_path / "paper.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match="416"):
        paper.read_paper_tables(tmp_path / "paper.yaml")


# Tables 10-12


def test_splits_count_by_split_target_type_and_polarity():
    lines = [
        pair(),
        pair(kind="lesion_inference"),
        pair(kind="global", mask=None),
        pair(target="opacity", kind="lesion_inference", mask=None),
        pair(target="opacity", kind="lesion_inference", mask=None),
        pair("test", "cardiomegaly", "global"),
        pair("validate", "effusion", mask=None),
    ]
    table = paper.tabulate_splits(
        Counter((line["split"], line["target"], paper.pair_column(line)) for line in lines), NUMBERS
    )
    assert table.shape == (24, 2 + 2 * 7 + 1)

    def row(split: str, lesion: str) -> dict:
        return table.row(by_predicate=(pl.col("split") == split) & (pl.col("lesion") == lesion), named=True)

    edema = row("train", "edema")
    assert {name: value for name, value in edema.items() if not name.endswith("_paper") and value} == {
        "split": "train",
        "lesion": "edema",
        "total": 3,
        "basic_positive": 1,
        "lesion_inference_positive": 1,
        "global_negative": 1,
    }
    assert edema["basic_positive_paper"] == 14150
    assert row("train", "opacity")["lesion_inference_negative"] == 2
    assert row("train", "total")["total"] == 5
    assert row("test", "total")["global_positive"] == 1
    effusion = row("validate", "effusion")
    assert (effusion["basic_negative"], effusion["basic_positive_paper"]) == (1, 79)
    assert effusion["note"] == "basic_positive printed as 416 in the paper"
    assert row("test", "effusion")["note"] == ""


# Table 8


def sweep_row(study: str, lesion: str, grounded: int, thresholds: str = "default", labels: bool = True) -> dict:
    return {
        "thresholds": thresholds,
        "study_id": study,
        "lesion": lesion,
        "grounded": grounded,
        "has_labels": labels,
    }


def test_recall_by_hand():
    rows = [
        sweep_row("a", "edema", 1),
        sweep_row("b", "edema", 0),
        sweep_row("c", "edema", 0, labels=False),
        # two images of a study: grounded on one of them
        sweep_row("d", "edema", 0),
        sweep_row("d", "edema", 2),
        sweep_row("a", "effusion", 1),
        sweep_row("b", "effusion", 3),
        sweep_row("c", "effusion", 0),
        sweep_row("a", "edema", 0, "half"),
    ]
    table = paper.tabulate_recall([pl.DataFrame(rows)], ["half", "default", "none"], NUMBERS)
    found = {(row["thresholds"], row["lesion"]): row for row in table.iter_rows(named=True)}
    assert list(table["thresholds"].unique(maintain_order=True)) == ["half", "default", "none"]
    assert table.height == 3 * 7
    edema = found["default", "edema"]
    assert (edema["recall"], edema["grounded"], edema["total"], edema["without_labels"]) == (50.0, 2, 4, 1)
    assert edema["paper"] == 58.0
    effusion = found["default", "effusion"]
    assert (effusion["recall"], effusion["grounded"], effusion["total"]) == (66.7, 2, 3)
    average = found["default", "average"]
    # (50 + 66.67) / 2; pneumonia and the others do not occur
    assert (average["recall"], average["grounded"], average["total"]) == (58.3, 4, 7)
    assert (average["paper"], average["note"]) == (28.2, "printed as 28.3")
    assert found["default", "pneumonia"]["recall"] is None
    assert found["half", "average"]["recall"] == 0.0
    assert found["none", "average"]["recall"] is None
    assert found["none", "edema"]["paper"] is None


def test_run_recall_reads_all_shards(tmp_path):
    paths = []
    for number, rows in enumerate(([sweep_row("a", "edema", 1)], [sweep_row("b", "edema", 0)])):
        paths.append(str(tmp_path / f"{number}.parquet"))
        write_table(paths[-1], pl.DataFrame(rows))
    output = tmp_path / "recall.tsv"
    run_recall(sweep=paths, recall_table=str(output), sets=["default"])
    table = read_table(output)
    assert table.columns == [
        "thresholds",
        "lesion",
        "recall",
        "grounded",
        "total",
        "without_labels",
        "paper",
        "note",
    ]
    assert table.filter(pl.col("lesion") == "edema")["recall"].to_list() == [50.0]


# The whole entry, on files


def write_run(root: Path) -> dict:
    """Files of a run of six images in two shards under one threshold set; the flows are those of ``good_flows``."""
    results = root / "results"

    def h5(stage: str, shards: list[str]) -> list[str]:
        paths = []
        for number, ids in enumerate(shards):
            paths.append(str(results / stage / f"{number:02d}.h5"))
            with ShardWriter(paths[-1], empty={"x": ((1,), np.uint8)}) as writer:
                for image_id in ids:
                    writer.append(image_id, x=np.zeros(1, np.uint8))
        return paths

    def parquet(folder: str, name: str, shards: list[str]) -> list[str]:
        paths = []
        for number, ids in enumerate(shards):
            paths.append(str(results / folder / f"{number:02d}{name}.parquet"))
            write_table(paths[-1], pl.DataFrame({"image_id": list(ids)}, schema={"image_id": pl.String}))
        return paths

    stopped = {
        "cohort": {"f": "not_frontal"},
        "frames": {"e": "undecodable"},
        "reports": {"e": "no_report"},
        "organs": {"d": "cut_off"},
        "dataset": {"c": "no_pairs"},
    }
    excluded = []
    for stage in STAGES:
        path = results / stage / "excluded.parquet"
        rows = [
            {"image_id": image, "study_id": f"s-{image}", "stage": stage, "reason": reason, "detail": ""}
            for image, reason in stopped.get(stage, {}).items()
        ]
        write_excluded(path, rows)
        if stage in ("masks", "dataset"):
            write_table(path, read_table(path).with_columns(thresholds=pl.lit("default")))
        excluded.append(str(path))
    images = pl.DataFrame([{"image_id": image, "study_id": f"s-{image}"} for image in "abcdef"])
    write_table(results / "cohort" / "images.parquet", images)
    studies = parquet("masks/default", ".studies", ["ac", "b"])
    for path in studies:  # the image c was not edited
        write_table(path, read_table(path).with_columns(unedited=pl.col("image_id") == "c"))
    reports = []
    for number, ids in enumerate(("ac", "bd")):
        reports.append(str(results / "reports" / f"{number:02d}.jsonl"))
        write_lines(reports[-1], [{"study_id": f"s-{image}"} for image in ids])
    findings = results / "masks" / "default" / "findings.parquet"
    table = pl.DataFrame({"target": ["edema", None, "effusion"], "mask_id": ["m1", None, None]})
    write_table(findings, table)
    lines = {
        "train": [pair(image="a"), pair(kind="lesion_inference", image="a"), pair(mask=None, image="a")],
        "validate": [],
        "test": [pair("test", "cardiomegaly", "global", "m2", image="b")],
    }
    paths = []
    for split, rows in lines.items():
        paths.append(str(results / "dataset" / "default" / f"{split}.jsonl"))
        write_lines(paths[-1], rows)
    outputs = {name: str(results / "tables" / f"{name}.tsv") for name in ("splits", "funnel", "conservation", "counts")}
    return {
        "images": str(results / "cohort" / "images.parquet"),
        "excluded": excluded,
        "shards": [
            *parquet("cohort", "", ["ace", "bd"]), *h5("frames", ["ac", "bd"]), *reports, *h5("organs", ["ac", "b"]),
            *h5("anomaly", ["ac", "b"]), *h5("anatomy", ["ac", "b"]), *parquet("boxes", "", ["aac", ""]),
        ],
        "studies": studies,
        "findings": [str(findings)],
        "lines": paths,
        **{f"{name}_table": path for name, path in outputs.items()},
        "thresholds": ["default"],
        "global_share": SHARES,
        "opacity_inference_share": 0.5,
    }  # fmt: skip


def test_run_counts_writes_four_tables(tmp_path):
    arguments = write_run(tmp_path)
    run_counts(**arguments)
    balance = read_table(arguments["conservation_table"])
    assert balance.columns == ["thresholds", "stage", "input", "accepted", "excluded", "balanced"]
    assert balance.select("stage", "input", "accepted", "excluded").rows() == [
        ("cohort", 6, 5, 1),
        ("frames", 5, 4, 1),
        ("reports", 5, 4, 1),
        ("organs", 4, 3, 1),
        ("anomaly", 3, 3, 0),
        ("anatomy", 3, 3, 0),
        ("boxes", 4, 4, 0),
        ("masks", 3, 3, 0),
        ("dataset", 3, 2, 1),
    ]
    assert set(balance["balanced"]) == {"yes"}
    steps = read_table(arguments["funnel_table"])
    assert steps["remaining"].to_list()[-1] == 2
    assert steps["thresholds"].unique().to_list() == ["default"]
    table = read_table(arguments["splits_table"])
    row = table.row(by_predicate=(pl.col("split") == "train") & (pl.col("lesion") == "edema"), named=True)
    assert (row["total"], row["basic_positive"], row["basic_negative"]) == (3, 1, 1)
    table = read_table(arguments["counts_table"]).select("count", "default", "paper")
    short = {row[0]: row[1:] for row in table.iter_rows() if "%" not in row[0]}
    assert short == {
        "input images": (6, None),
        "images not edited": (1, None),
        "images with pairs": (2, 192000),
        "studies with pairs": (2, None),
        "findings of the seven lesion types": (2, None),
        "findings with a mask": (1, None),
        "distinct masks": (2, 91000),
        "pairs": (4, 1100000),
        "positive pairs": (3, 135000),
        "negative pairs": (1, 930000),
        "pairs of train": (3, None),
        "pairs of validate": (0, None),
        "pairs of test": (1, None),
    }


def test_a_lost_image_stops_the_tables(tmp_path):
    arguments = write_run(tmp_path)
    write_excluded(tmp_path / "results" / "organs" / "excluded.parquet", [])
    with pytest.raises(StoreError, match="organs does not balance: 1 input images are lost"):
        run_counts(**arguments)


def test_boxes_of_an_excluded_image_stop_the_tables(tmp_path):
    arguments = write_run(tmp_path)
    ledger = tmp_path / "results" / "boxes" / "excluded.parquet"
    row = {"image_id": "a", "study_id": "s-a", "stage": "boxes", "reason": "engine_failure", "detail": ""}
    write_table(ledger, pl.DataFrame([row], schema=EXCLUDED_SCHEMA))
    with pytest.raises(StoreError, match="boxes does not balance: 0 input images are lost, 1 are both"):
        run_counts(**arguments)


def test_a_missing_ledger_is_named(tmp_path):
    arguments = write_run(tmp_path)
    arguments["excluded"] = [path for path in arguments["excluded"] if "/anatomy/" not in path]
    with pytest.raises(StoreError, match=r"results/anatomy/excluded\.parquet is missing"):
        run_counts(**arguments)


def test_counts_of_several_sets_stand_side_by_side():
    tally = counts.Tally()
    tally.add(pair())
    rows = counts.count_by_name(tally, pl.DataFrame({"target": ["edema"], "mask_id": ["m1"]}), 9)
    both = {"default": rows, "half": rows | {"pairs": 5}}
    table = counts.count_table({"default": tally, "half": tally}, both, SHARES, 0.5, NUMBERS)
    assert table.columns == ["count", "default", "half", "configured", "paper"]
    assert table.row(by_predicate=pl.col("count") == "pairs") == ("pairs", "1", "5", "", "1100000")


def test_shares_of_the_negatives_stand_beside_those_asked_for():
    """Four negatives of edema, two of them global; of three opacities one is global, one of the others an inference."""
    tally = counts.Tally()
    for target, kinds in {"edema": "bggb", "opacity": "gbi"}.items():
        for number, kind in enumerate(kinds):
            name = {"b": "basic", "g": "global", "i": "lesion_inference"}[kind]
            split = ("train", "validate", "test")[number % 3]
            tally.pairs[split, target, f"{name}_negative"] += 1
    tally.pairs["train", "edema", "global_positive"] += 5
    found = counts.negative_shares(tally.pairs)
    assert found["global among negatives of edema, %"] == 50
    assert found["global among negatives of opacity, %"] == pytest.approx(100 / 3)
    assert found["global among negatives of effusion, %"] is None
    assert found["lesion inference among opacity's negatives at a place, %"] == 50
    rows = counts.count_by_name(tally, pl.DataFrame({"target": ["edema"], "mask_id": ["m1"]}), 9)
    table = counts.count_table({"default": tally}, {"default": rows}, SHARES, 0.5, NUMBERS)
    shown = [row for row in table.rows() if row[0].endswith(("opacity, %", "edema, %", "effusion, %", "place, %"))]
    # Table 10: 274 of 146,162, 3,292 of 148,543, 34,666 of 149,041, 72,269 of 145,888
    assert shown == [
        ("global among negatives of opacity, %", "33.33", "10.00", "0.19"),
        ("global among negatives of edema, %", "50.00", "10.00", "2.22"),
        ("global among negatives of effusion, %", "", "10.00", "23.26"),
        ("lesion inference among opacity's negatives at a place, %", "50.00", "50.00", "49.54"),
    ]
