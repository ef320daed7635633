"""Ablation: the table of all points against plain counting, the content of the figures, and the whole target."""

import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import LESIONS
from cxr.metrics.intervals import Rate
from cxr.reporting.ablation import charts, points
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read
from declared_tables import tables_of
from whole_runs import copy_repository

LESION_TYPES = LESIONS[1:]
GRID = {"general": {"ano": [0.05, 0.10, 0.15], "conf": [0.10, 0.30]}, "edema": {"ano": [0.005, 0.01]}}


def grid_options(grid: dict | None = None, **more: object) -> tuple[dict, dict]:
    """Options of both rules for a grid."""
    empty = {"general": {"ano": [], "conf": []}}
    options = stage_options(read({"thresholds": {"grid": empty if grid is None else grid} | more}))
    return options["ablation"], options["ablation_charts"]


# --- table -----------------------------------------------------------------------------------------------------------


def random_sweep(sets: list[str], seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    rows = []
    for study in range(60):
        for lesion in LESION_TYPES[:5]:  # no effusion
            if random.random() < 0.3:
                findings = int(random.integers(1, 4))
                for name in sets:
                    masks = int(random.integers(0, findings + 1))
                    grounded = int(random.integers(0, masks + 1))
                    rows.append(
                        {"thresholds": name, "study_id": f"s{study}", "lesion": lesion, "findings": findings}
                        | {"masks": masks, "grounded": grounded}
                        | {"mask_px": int(random.integers(1, 9000)) if grounded else 0}
                    )
    return pl.DataFrame(rows)


def test_the_table_counts_what_the_sweep_holds(tmp_path):
    options, _ = grid_options(GRID)
    names = list(options["sets"])
    assert len(names) == 2 + 12
    sweep = random_sweep(names, 3)
    early = pl.col("study_id").str.len_chars() == 2
    paths = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for path, part in zip(paths, (sweep.filter(early), sweep.filter(~early), sweep.clear()), strict=True):
        write_table(path, part)
    output = str(tmp_path / "points.tsv")
    points.run_table(sweep=paths, table=output, **options)
    table = read_table(output)
    assert table.columns == list(points.POINTS)
    assert table["thresholds"].unique(maintain_order=True).to_list() == names
    cells = defaultdict(list)
    for row in sweep.iter_rows(named=True):
        cells[row["thresholds"], row["lesion"]].append(row)
    for name in names:
        taus = options["sets"][name]
        rows = table.filter(pl.col("thresholds") == name).to_dicts()
        assert [row["lesion"] for row in rows] == [*LESION_TYPES, "average"]
        for row in rows:
            own = cells[name, row["lesion"]]
            if row["lesion"] == "average":
                own = [one for lesion in LESION_TYPES for one in cells[name, lesion]]
            assert row["kind"] == ("set" if name in ("default", "half") else "grid")
            assert [row[tau] for tau in points.TAUS] == [taus["general"][tau] for tau in points.TAUS]
            assert [row[f"edema_{tau}"] for tau in points.TAUS] == [taus["edema"][tau] for tau in points.TAUS]
            assert row["studies"] == len(own)
            assert row["recalled"] == sum(one["grounded"] > 0 for one in own)
            assert row["findings"] == sum(one["findings"] for one in own)
            assert row["masks"] == sum(one["masks"] for one in own)
            assert row["yield"] == sum(one["grounded"] for one in own)
            seen = [one["mask_px"] for one in own if one["grounded"]]
            assert row["median_mask_px"] == (median(seen) if seen else None)
            if not own:
                assert row["recall"] is None
                assert row["recall_low"] is None
            elif row["lesion"] != "average":
                assert row["recall"] == round(100 * row["recalled"] / row["studies"], 1)
        known = [100 * row["recalled"] / row["studies"] for row in rows[:-1] if row["studies"]]
        assert rows[-1]["recall"] == pytest.approx(sum(known) / len(known), abs=0.051)
        assert rows[-1]["recall_low"] < rows[-1]["recall"] < rows[-1]["recall_high"]


def test_the_interval_of_a_mean():
    assert points.mean_rate([]) is None
    assert points.mean_rate([Rate(0.5, 0.2, 0.9), Rate(0.3, 0.3, 0.6)]) == pytest.approx((0.4, 0.25, 0.65))


# --- figures ---------------------------------------------------------------------------------------------------------


def made_up(options: dict) -> pl.DataFrame:
    """A table in which the recall of a point can be told from its thresholds."""
    counted = []
    for name, taus in options["sets"].items():
        for lesion in LESION_TYPES:
            own = taus["edema" if lesion == "edema" else "general"]
            recalled = round(1000 * (own["ano"] + own["conf"]))
            counted.append(
                {"thresholds": name, "lesion": lesion, "studies": 1000, "recalled": recalled, "findings": 1100}
                | {"masks": recalled + 20, "yield": recalled + 10, "mask_px": [7]}
            )
    return points.tabulate_points(pl.DataFrame(counted), options["sets"], options["grid"])


def panels(figure) -> list:
    return [panel for panel in figure.axes if panel.get_visible() and panel.get_label() != "<colorbar>"]


def test_curves_go_through_the_points_whose_other_thresholds_are_at_the_base():
    options, chart = grid_options(GRID)
    axes, reference = charts.find_varied(chart["axes"], chart["base"])
    assert [(axis.column, axis.values) for axis in axes] == [
        ("ano", [0.05, 0.10, 0.15]),
        ("conf", [0.10, 0.30]),
        ("edema_ano", [0.005, 0.01]),
    ]
    # the base's conf, 0.2, is no value of the grid: of the two as near the lower one stands for it
    assert (reference["conf"], reference["ano"], reference["signal"]) == (0.10, 0.10, 0.2)
    figure = charts.draw_curves(made_up(options), axes, reference)
    assert "tau_conf at 0.1" in figure.get_suptitle()
    shown = panels(figure)
    # two columns for five lesion types and the average, twice, and for edema and the average
    assert len(shown) == 2 * (6 + 6 + 2)
    rows = {panel.get_ylabel(): panel for panel in shown if panel.get_ylabel()}
    assert list(rows) == ["pneumonia", "atelectasis", "opacity", "consolidation", "effusion", "edema", "average"]
    recall, base = rows["pneumonia"].lines
    assert recall.get_xdata().tolist() == [0.05, 0.10, 0.15]
    assert recall.get_ydata().tolist() == [15.0, 20.0, 25.0]
    assert base.get_xdata() == [0.1, 0.1]
    of_edema = rows["edema"].lines[0]
    assert (of_edema.get_xdata().tolist(), of_edema.get_ydata().tolist()) == ([0.005, 0.01], [1.5, 2.0])
    stated, yields = shown[shown.index(rows["pneumonia"]) + 1].lines[:2]
    assert yields.get_ydata().tolist() == [160, 210, 260]
    assert stated.get_ydata().tolist() == [1100] * 3


def test_a_named_set_on_the_way_is_a_point_of_the_curve():
    """The base lies between the grid's values of the only varied threshold."""
    options, chart = grid_options({"general": {"ano": [0.05, 0.15], "conf": [0.2]}})
    axes, reference = charts.find_varied(chart["axes"], chart["base"])
    recall = panels(charts.draw_curves(made_up(options), axes, reference))[0].lines[0]
    # reference of ano is not asked for on its own axis
    assert recall.get_xdata().tolist() == [0.05, 0.10, 0.15]


def test_the_map_is_of_the_first_two_varied_thresholds_with_the_rest_at_the_base():
    grid = {"general": {"ano": [0.05, 0.10, 0.15], "conf": [0.10, 0.20], "size": [0.05, 0.2]}}
    options, chart = grid_options(grid)
    assert len(options["grid"]) == 12
    axes, reference = charts.find_varied(chart["axes"], chart["base"])
    figure = charts.draw_map(made_up(options), axes, reference)
    assert figure.get_suptitle().endswith("but tau_size at 0.05")
    shown = panels(figure)
    assert [panel.get_title() for panel in shown] == [*LESION_TYPES[:4], "effusion", "average"]
    assert shown[0].images[0].get_array().tolist() == [[15.0, 25.0], [20.0, 30.0], [25.0, 35.0]]
    assert [text.get_text() for text in shown[0].texts] == ["15", "25", "20", "30", "25", "35"]
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("tau_conf", "tau_ano")


@pytest.mark.parametrize(
    ("grid", "curves", "recall_map"),
    [
        (None, "There is nothing to draw", "There is nothing to draw"),
        ({"general": {"ano": [0.1], "conf": [0.2]}}, "There is nothing to draw", "There is nothing to draw"),
        ({"general": {"ano": [], "conf": [0.1, 0.2]}}, None, "There is no map, because only tau_conf has"),
        (
            {"general": {"ano": [], "conf": []}, "edema": {"size": [0.1, 0.2]}},
            None,
            "There is no map, because only tau_size",
        ),
    ],
)
def test_what_is_not_varied_is_said_in_one_line(grid, curves, recall_map):
    options, chart = grid_options(grid)
    axes, reference = charts.find_varied(chart["axes"], chart["base"])
    drawn = [draw(made_up(options), axes, reference) for draw in (charts.draw_curves, charts.draw_map)]
    for figure, line in zip(drawn, (curves, recall_map), strict=True):
        if line:
            assert [text.get_text().startswith(line) for text in figure.texts] == [True]
            assert not figure.axes
        else:
            assert panels(figure)


@pytest.mark.slow
def test_a_lesion_without_a_study_leaves_a_gap(tmp_path):
    options, chart = grid_options(GRID)
    sweep = random_sweep(list(options["sets"]), 4).filter(pl.col("lesion") == "edema")
    write_table(tmp_path / "sweep.parquet", sweep)
    table = str(tmp_path / "points.tsv")
    points.run_table(sweep=[str(tmp_path / "sweep.parquet")], table=table, **options)
    drawn = [str(tmp_path / name) for name in ("curves.png", "map.png")]
    charts.run_charts(table=table, curves=drawn[0], recall_map=drawn[1], **chart)
    first = [Path(path).read_bytes() for path in drawn]
    charts.run_charts(table=table, curves=drawn[0], recall_map=drawn[1], **chart)
    assert [Path(path).read_bytes() for path in drawn] == first
    assert all(data.startswith(b"\x89PNG") for data in first)


# --- the target ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ablated(workflow_run, tmp_path_factory) -> Path:
    """The finished slice with the target's results, and the masks of one grid point made whole."""
    directory = tmp_path_factory.mktemp("ablation") / "run"
    shutil.copytree(workflow_run, directory, symlinks=True)
    done = snakemake(directory, "ablation", "results/masks/ano0.05_conf0.1/index.parquet")
    jobs = json.dumps(done.stdout + done.stderr)
    assert "masks_sweep" not in jobs  # recall.tsv already wanted it
    return directory


@pytest.mark.slow
def test_the_table_has_its_declared_columns(ablated):
    assert tables_of(ablated)["results/ablation/points.tsv"] == ""


def test_the_target_agrees_with_the_table_of_recall(ablated):
    table = read_table(ablated / "results/ablation/points.tsv")
    recall = read_table(ablated / "results/tables/recall.tsv")
    assert table["thresholds"].n_unique() == 2 + 9
    both = table.join(recall, on=("thresholds", "lesion"), how="full", suffix="_paper", coalesce=True)
    assert len(both) == len(table) == len(recall)
    assert (both["recall"].cast(pl.Float64) - both["recall_paper"].cast(pl.Float64)).abs().max() == 0
    assert both["studies"].to_list() == both["total"].to_list()
    assert both["recalled"].to_list() == both["grounded"].to_list()
    assert both["recalled"].max() > 0


def test_a_point_made_whole_agrees_with_the_sweep_in_every_decision(ablated):
    name, swept, expected = "ano0.05_conf0.1", [], []
    for shard in ("00", "01", "02"):
        rows = read_table(ablated / f"results/masks/sweep/{shard}.parquet")
        swept += rows.filter(pl.col("thresholds") == name).drop("thresholds").to_dicts()
        found = read_table(ablated / f"results/masks/{name}/{shard}.findings.parquet")
        with Shard(ablated / f"results/masks/{name}/{shard}.h5", key="mask_id") as masks:
            expected += whole_rows(found.to_dicts(), masks)
    assert swept == expected
    assert any(row["grounded"] for row in swept)


def whole_rows(findings: list[dict], masks: Shard) -> list[dict]:
    """The rows that a sweep must have, from the files of a point made whole."""
    by_lesion = defaultdict(list)
    for row in findings:
        if row["target"] in LESION_TYPES:
            by_lesion[row["study_id"], row["image_id"], LESIONS.index(row["target"])].append(row)
    rows = []
    for (study, image, lesion), own in sorted(by_lesion.items()):
        grounded = [masks.get("mask", row["mask_id"]) for row in own if row["grounded"]]
        rows.append(
            {"study_id": study, "image_id": image, "subject_id": own[0]["subject_id"], "split": own[0]["split"]}
            | {
                "unedited": own[0]["unedited"],
                "lesion": LESIONS[lesion],
                "findings": len(own),
                "has_labels": any(row["reported"] for row in own),
            }
            | {"masks": sum(row["mask_id"] is not None for row in own), "grounded": len(grounded)}
            | {"mask_px": int(np.logical_or.reduce(grounded).sum()) if grounded else 0}
        )
    return rows


@pytest.mark.slow
def test_what_re_runs(ablated, dry_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(ablated, copy, symlinks=True)
    assert dry_run(copy, "ablation") == {}
    assert dry_run(copy, "all").keys() == {"page_index", "page_costs", "all"}  # the page shows it from now on
    # another point: the sweep and what follows from it, and no masks
    write_settings(copy, SLICE | {"thresholds": {"grid": {"general": {"ano": [0.05, 0.10, 0.15, 0.2]}}}})
    jobs = dry_run(copy, "all", "ablation")
    assert {"masks_sweep", "tables_recall", "ablation_table", "ablation_charts"} <= jobs.keys()
    assert jobs["masks_sweep"] == 3
    assert not jobs.keys() & {"masks_shard", "masks_index", "dataset_pairs", "boxes_shard"}
    # the way it is drawn
    write_settings(copy, SLICE)
    clone = copy_repository(tmp_path / "clone")
    drawing = clone / "scripts/cxr/reporting/ablation/charts.py"
    drawing.write_text(drawing.read_text() + "\nEDITED = 1\n")
    assert dry_run(copy, "ablation", root=clone).keys() == {"ablation_charts", "ablation"}


@pytest.mark.slow
def test_no_grid_is_a_target_too(ablated, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(ablated, copy, symlinks=True)
    write_settings(copy, SLICE | {"thresholds": {"grid": {"general": {"ano": [], "conf": []}}}})
    snakemake(copy, "ablation")
    assert set(read_table(copy / "results/ablation/points.tsv")["thresholds"]) == {"default", "half"}
    report = tmp_path / "report.html"
    snakemake(copy, "ablation", "--report", str(report))
    text = report.read_text()
    for words in ("varied threshold (two columns each; none)", "Heat maps of recall in percent", "Its 95 % intervals"):
        assert words in text
