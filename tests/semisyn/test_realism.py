"""Realism: measures of edited shards with known answers, their scores, and the choice that follows."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.imaging.boxes.detect_boxes import COLUMNS
from cxr.metrics.appearance import FEATURES
from cxr.semisyn.editing.edit_images import BOXES
from cxr.semisyn.editing.settings import EditingConfig
from cxr.semisyn.realism import measure, score
from cxr.semisyn.realism.measure import REFERENCE
from cxr.semisyn.selection import select_configs
from review_cases import cells

SHAPE = (512, 512)
CLASSES = {"opacity": "Lung Opacity", "cardiomegaly": "Cardiomegaly"}
BOX = (120.0, 200.0, 200.0, 280.0)
JOBS = 12


def organs(heart_width: int) -> np.ndarray:
    masks = np.zeros((3, *SHAPE), bool)
    masks[0, 120:400, 80:220] = True
    masks[1, 120:400, 300:440] = True
    masks[2, 280:400, 260 - heart_width // 2 : 260 + heart_width // 2] = True
    return masks


LABELS = ("right lung", "left lung", "heart")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Files of one shard: opacities of 30 grey levels in jobs 0 to 11, and one heart made from 120 to 180 px wide."""
    folder = tmp_path_factory.mktemp("realism")
    draw = np.random.default_rng(1)
    names = [f"i{number}" for number in range(JOBS)]
    sources = {name: draw.normal(90, 12, SHAPE).clip(0, 255).astype(np.uint8) for name in names}
    jobs = [f"opacity-{number:06d}" for number in range(JOBS)]
    plan = [
        (job, "opacity", image, number % 2 == 0) for number, (job, image) in enumerate(zip(jobs, names, strict=True))
    ]
    plan.append(("cardiomegaly-000000", "cardiomegaly", "i0", True))
    columns = {"job_id": pl.String, "finding": pl.String, "image_id": pl.String, "trial": pl.Boolean}
    write_table(folder / "plan.parquet", pl.DataFrame(plan, schema=columns, orient="row"))
    healthy = pl.DataFrame({"image_id": names, "subject_id": [f"p{number // 2}" for number in range(JOBS)]})
    write_table(folder / "healthy.parquet", healthy)
    placed = pl.DataFrame(
        {"job_id": [*jobs, "cardiomegaly-000000"], "ctr_to": [None] * JOBS + [0.5]},
        schema={"job_id": pl.String, "ctr_to": pl.Float64},
    )
    write_table(folder / "placed.parquet", placed)
    with ShardWriter(folder / "frames.h5") as frames, ShardWriter(folder / "organs.h5", labels=LABELS) as masks:
        for name in names:
            frames.append(name, image=sources[name])
            masks.append(name, mask=organs(120))
    rows = []
    x1, y1, x2, y2 = map(int, BOX)
    with ShardWriter(folder / "edited.h5") as edited, ShardWriter(folder / "organs_after.h5", labels=LABELS) as after:
        for job, _, image_id, _ in sorted(plan):
            picture = sources[image_id].astype(int)
            heart = job.startswith("cardio")
            picture[y1:y2, x1:x2] += 0 if heart else 30
            picture[300:320, 230:300] += 10 if heart else 0
            edited.append(job, image=picture.clip(0, 255).astype(np.uint8))
            after.append(job, mask=organs(180 if heart else 120))
            box = (170.0, 280.0, 350.0, 400.0) if heart else BOX
            told = {"job_id": job, "number": 0, "side": "" if heart else "right", "config": "lite", "parameters": "{}"}
            told |= dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))
            told |= {"change_inside": 30.0, "change_outside_max": 0.0, "leak": 0.0, "area": 6400}
            rows += [told | {"kind": kind} for kind in ("conditioning", "visible")]
    write_table(folder / "asked.parquet", pl.DataFrame(rows, schema=schema(BOXES)))
    confident = [(job, *BOX, 0.8, "Lung Opacity", True) for job in jobs[:9]]
    write_table(folder / "detected.parquet", pl.DataFrame(confident, schema=schema(COLUMNS), orient="row"))
    doubtful = [(name, *BOX, 0.2, "Lung Opacity", True) for name in names[:3]]
    write_table(folder / "source.parquet", pl.DataFrame(doubtful, schema=schema(COLUMNS), orient="row"))
    tables = {name: str(folder / f"{name}.parquet") for name in ("plan", "healthy", "jobs", "boxes")}
    shards = {name: [str(folder / f"{name}.h5")] for name in ("frames", "organs")}
    measure.run_shard(
        placed=[str(folder / "placed.parquet")],
        source_boxes=[str(folder / "source.parquet")],
        edited=[str(folder / "edited.h5")],
        requested_boxes=[str(folder / "asked.parquet")],
        edited_organs=[str(folder / "organs_after.h5")],
        edited_boxes=[str(folder / "detected.parquet")],
        classes=CLASSES,
        **tables,
        **shards,
    )
    return folder


def test_an_opacity_has_its_known_measures(folder):
    row = cells(read_table(folder / "jobs.parquet"), job_id="opacity-000000")
    assert row["change"] == pytest.approx(30, abs=0.01)
    assert (row["leak"], row["iou_visible"]) == (0.0, 1.0)
    assert row["edge_ratio"] == pytest.approx(1, abs=0.01)  # a rectangle
    assert (row["score"], row["source_score"]) == (0.8, 0.2)
    assert (row["ctr_requested"], row["ctr_measured"]) == (None, None)
    assert cells(read_table(folder / "jobs.parquet"), job_id="opacity-000011")["score"] == 0.0
    box = read_table(folder / "boxes.parquet").filter(pl.col("job_id") == "opacity-000000")
    # 30 grey levels in deviations of the lungs, which the box itself widens
    assert box["contrast"][0] == pytest.approx(30 / 13.5, rel=0.1)
    assert box["ratio_fine"][0] == pytest.approx(0, abs=0.1)


def test_a_heart_has_its_ratio_and_no_leak(folder):
    row = cells(read_table(folder / "jobs.parquet"), job_id="cardiomegaly-000000")
    assert (row["leak"], row["iou_visible"], row["edge_ratio"]) == (None, None, None)
    assert (row["ctr_requested"], row["ctr_measured"]) == (0.5, 180 / 360)
    assert not len(read_table(folder / "boxes.parquet").filter(pl.col("finding") == "cardiomegaly"))


def scored(
    folder: Path, config: str, references: tuple[str, ...] = (), **changes: object
) -> tuple[pl.DataFrame, pl.DataFrame]:
    told = {"config": config, "classes": CLASSES, "detector": "lite", "classifier": "lite", "painted": True}
    told |= {"replicates": 200, "seed": 1, "reference": "", "extractors": {}}
    options = score.ScoreOptions(**(told | {"findings": ["opacity", "cardiomegaly"]} | changes))
    paths = {name: str(folder / f"{name}_{config}.parquet") for name in ("table", "output", "replicates")}
    score.run(
        jobs=[str(folder / "jobs.parquet")], boxes=[str(folder / "boxes.parquet")],
        requested_boxes=[str(folder / "asked.parquet")], detected=[str(folder / "detected.parquet")],
        options=options, **paths,
        references=references,
    )  # fmt: skip
    return read_table(paths["output"]), read_table(paths["replicates"])


def test_scores_of_trial_jobs(folder):
    table, replicates = scored(folder, "lite")
    auroc = cells(table, finding="opacity", metric="auroc")
    # jobs 0, 2, 4, 6, 8 have .8 and job 10 none; sources 0 and 2 have .2: pairs of 6 x 6
    assert auroc["value"] == pytest.approx((5 * 6 + 0.5 * 4) / 36)
    assert (auroc["images"], auroc["circular"], auroc["screened_by_scorer"], auroc["trial"]) == (6, True, True, True)
    ap = cells(table, finding="opacity", metric="ap1070")
    assert ap["value"] == pytest.approx(84 / 101)  # five of six found: recalls to 5/6
    assert cells(table, finding="cardiomegaly", metric="ctr_error")["value"] == 0.0
    assert not len(table.filter(pl.col("metric") == "auroc", pl.col("finding") == "cardiomegaly"))  # never found
    assert not len(table.filter(pl.col("metric") == "c2st"))  # without real boxes there is no such metric
    of = replicates.filter(pl.col("metric") == "auroc", pl.col("finding") == "opacity")
    assert sorted(of["replicate"]) == list(range(-1, 200))
    assert of["circular"].all()
    assert not replicates.filter(pl.col("metric") == "ctr_error")["circular"].any()
    assert auroc["low"] < auroc["value"] < auroc["high"]


def test_real_boxes_are_told_from_edited_ones(folder, tmp_path):
    """Real boxes that look like the edited ones give one half, much brighter ones 1; those without measures none."""
    ours = read_table(folder / "boxes.parquet")
    found = {}
    for name, shift in (("alike", 0.0), ("brighter", 5.0)):
        draw = np.random.default_rng(3)
        rows = [
            {"image_id": f"r{at}", "finding": "opacity", "subject_id": f"q{at}", "number": 0}
            | {key: float(draw.choice(ours[key])) + (shift if key == "contrast" else 0) for key in FEATURES}
            for at in range(12)
        ]
        rows.append(rows[0] | dict.fromkeys(FEATURES) | {"image_id": "no organs"})
        write_table(tmp_path / f"{name}.parquet", pl.DataFrame(rows, schema=schema(REFERENCE)), REFERENCE)
        table, _ = scored(folder, "lite", (str(tmp_path / f"{name}.parquet"),), reference="people")
        found[name] = cells(table, finding="opacity", metric="c2st")
        assert found[name]["reference"] == "people, 12 boxes"
        assert (found[name]["engine"] or "", found[name]["circular"]) == ("", False)
    assert found["brighter"]["value"] == 1.0
    assert found["alike"]["value"] < 0.9
    write_table(tmp_path / "none.parquet", pl.DataFrame([], schema=schema(REFERENCE)), REFERENCE)
    with pytest.raises(UserError, match=r"semisyn\.references\.people has no image of the cohort with a finding"):
        scored(folder, "lite", (str(tmp_path / "none.parquet"),), reference="people")


def test_the_chosen_ones_are_scored_on_fresh_jobs(folder):
    table, _ = scored(folder, "chosen", detector="ultralytics", painted=False)
    auroc = cells(table, finding="opacity", metric="auroc")
    assert (auroc["images"], auroc["circular"], auroc["screened_by_scorer"], auroc["trial"]) == (6, False, False, False)
    assert not len(table.filter(pl.col("finding") == "cardiomegaly"))


def test_the_choice_and_its_files(folder, tmp_path):
    scored(folder, "lite")
    configs = {"lite": EditingConfig(), "radedit": EditingConfig(engine="radedit"), "again": EditingConfig()}
    worse = read_table(folder / "replicates_lite.parquet").with_columns(
        pl.lit("radedit").alias("config"), pl.col("value") - 0.1
    )
    write_table(tmp_path / "worse.parquet", worse)
    options = {"configs": {name: config.as_dict() for name, config in configs.items()}, "same_as": {"again": "lite"},
               "metrics": ["auroc", "ap1070"], "samples": 6, "dpi": 50}  # fmt: skip
    out = {name: str(tmp_path / name) for name in ("choice", "table.tsv", "grid.tsv", "pipelines.png", "extent.png")}
    select_configs.run(
        replicates=[str(folder / "replicates_lite.parquet"), str(tmp_path / "worse.parquet")], choice=out["choice"],
        table=out["table.tsv"], grid=out["grid.tsv"], pipelines=out["pipelines.png"], extent=out["extent.png"],
        **options,
    )  # fmt: skip
    chosen = yaml.safe_load(Path(out["choice"]).read_text(encoding="utf-8"))
    assert chosen["opacity"] == {
        "config": "lite", "engine": "lite", "score": 1.0, "second": "radedit", "difference": [1.0, 1.0], "samples": 6,
        "circular": ["ap1070", "auroc"],
    }  # fmt: skip
    grid = read_table(out["grid.tsv"])
    again = cells(grid, config="again")
    assert (again["same_as"], again["score"]) == ("lite", 1.0)
