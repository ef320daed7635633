"""The editor lite in the stage: shards from jobs, the same bytes for any threads, a user's finding and its painter."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from cxr.base.columns import schema
from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS, HEART, LUNGS
from cxr.geometry.boxes import bounding_box
from cxr.imaging.phantom import chest
from cxr.semisyn.editing.edit_images import EditingOptions, run_shard
from cxr.semisyn.editing.settings import EditingSettings
from cxr.semisyn.placement.plan_jobs import BOXES, PLAN
from nodules import NODULE, written

ORGANS = (*LUNGS, HEART)
SETTINGS = EditingSettings().as_dict()


def options(findings: list[str]) -> EditingOptions:
    return EditingOptions(
        engine="lite",
        engine_settings={},
        configs=SETTINGS["configs"],
        choice=dict.fromkeys(findings, "lite"),
        max_leak=SETTINGS["max_leak"],
        seed=5,
        findings=findings,
    )


@pytest.fixture(scope="module")
def chests() -> dict[str, chest.Chest]:
    kind = {"cardiomegaly": False, "ap": False}
    return {f"film{seed}": chest.draw_chest(np.random.default_rng(seed), 512, **kind) for seed in (3, 4)}


def jobs(chests: dict, findings: list[str]) -> tuple[list[dict], list[dict]]:
    """Return rows of the plan and of the placed boxes: a job of every finding on every film."""
    plan, placed = [], []
    for finding in findings:
        for index, (name, normal) in enumerate(chests.items()):
            job = f"{finding}-{index:06d}"
            cells = (job, finding, index, name, "00", f"Right {finding}.", finding, False, True)
            plan.append(dict(zip(PLAN, cells, strict=True)))
            right, left, heart = (bounding_box(normal.masks[organ]) for organ in ORGANS)
            x1, y1, x2, y2 = right
            box, side, ratios = (x1, y1 + 0.55 * (y2 - y1), x2, y2 + 2.0), "right", (None, None)
            if finding == "cardiomegaly":
                before = (heart[2] - heart[0]) / (left[2] - right[0])
                box, side, ratios = heart, "", (before, before + 0.08)
            if finding == "pneumothorax":
                box = (x1, y1, x2, y1 + 0.45 * (y2 - y1))
            row = dict.fromkeys(BOXES) | dict(zip(("x1", "y1", "x2", "y2"), map(float, box), strict=True))
            row |= {"job_id": job, "image_id": name, "finding": finding, "side": side, "zone": "", "tries": 1}
            placed.append(row | dict(zip(("ctr_from", "ctr_to"), ratios, strict=True)))
    return plan, placed


def written_inputs(folder, chests: dict, findings: list[str]) -> dict[str, str]:
    plan, placed = jobs(chests, findings)
    paths = {name: str(folder / f"{name}.parquet") for name in ("plan", "placed")}
    write_table(paths["plan"], pl.DataFrame(plan, schema=schema(PLAN)), PLAN)
    write_table(paths["placed"], pl.DataFrame(placed, schema=schema(BOXES)), BOXES)
    paths |= {name: str(folder / f"{name}.h5") for name in ("frames", "organs")}
    with (
        ShardWriter(paths["frames"], pictures=("image",)) as frames,
        ShardWriter(paths["organs"], labels=ORGANS) as organs,
    ):
        for name, normal in chests.items():
            image = np.rint(255 * normal.image).astype(np.uint8)
            frames.append(name, image=image, to_original=np.eye(2, 3), original_shape=np.array([512, 512], np.int32))
            organs.append(name, mask=np.stack([normal.masks[organ] for organ in ORGANS]))
    return paths


def run(folder, inputs: dict, told: EditingOptions, threads: int = 1, findings_file: str = "") -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    names = {"output": "00.h5", "boxes": "00.boxes.parquet", "excluded": "00.excluded.parquet"}
    out = {name: str(folder / ending) for name, ending in names.items()}
    how = {"shard": "00", "config": "chosen", "options": told, "attrs": {}, "threads": threads}
    run_shard(**inputs, **out, **how, findings_file=findings_file)
    return out


@pytest.fixture(scope="module")
def edited(chests, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    inputs = written_inputs(folder, chests, list(FINDINGS))
    return inputs, run(folder / "one", inputs, options(list(FINDINGS))), folder


def test_every_finding_is_painted_and_nothing_is_lost(edited, chests):
    inputs, out, _ = edited
    boxes, planned = read_table(out["boxes"]), read_table(inputs["plan"])
    assert read_table(out["excluded"]).is_empty()
    with Shard(out["output"]) as shard, Shard(inputs["frames"]) as frames:
        assert sorted(shard.ids) == sorted(planned["job_id"])
        for job, image in planned.select("job_id", "image_id").iter_rows():
            picture, lesion = shard.get("image", job), shard.get("lesion", job)
            assert (picture != frames.get("image", image)).any()
            assert lesion.any()
    assert set(boxes["kind"]) == {"conditioning", "visible"}
    drawn = {row["job_id"]: json.loads(row["parameters"]) for row in boxes.iter_rows(named=True)}
    assert all(drawn.values())
    in_lungs = boxes.filter(~pl.col("job_id").str.starts_with("cardiomegaly"))
    assert in_lungs["leak"].max() == 0
    assert in_lungs["change_outside_max"].max() == 0


def test_threads_and_other_jobs_do_not_change_a_byte(edited, chests):
    inputs, out, folder = edited
    again = run(folder / "three", inputs, options(list(FINDINGS)), threads=3)
    for name in out:
        assert Path(out[name]).read_bytes() == Path(again[name]).read_bytes()
    alone = run(folder / "alone", inputs, options(["edema"]))
    with Shard(out["output"]) as both, Shard(alone["output"]) as one:
        assert one.ids == ["edema-000000", "edema-000001"]
        for job in one.ids:
            assert both.get("image", job).tobytes() == one.get("image", job).tobytes()


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_constant_picture_is_edited_or_refused(chests, tmp_path, level):
    """A picture without any detail is no failure of the engine: each job gives an image, or a reason of its own."""
    flat = {"flat": SimpleNamespace(image=np.full((512, 512), level / 255), masks=chests["film3"].masks)}
    inputs = written_inputs(tmp_path, flat, list(FINDINGS))
    out = run(tmp_path / "out", inputs, options(list(FINDINGS)))
    with Shard(out["output"]) as shard:
        made = set(shard.ids)
        assert all(np.isfinite(shard.get("image", job)).all() for job in made)
    lost = dict(read_table(out["excluded"]).select("image_id", "reason").rows())
    assert made | lost.keys() == {f"{finding}-000000" for finding in FINDINGS}
    assert not made & lost.keys()
    assert set(lost.values()) <= {"nothing_changed", "leaked", "bad_picture"}


def test_a_users_finding_is_painted_by_the_painter_that_it_names(chests, tmp_path):
    mine = written(tmp_path, NODULE)
    inputs = written_inputs(tmp_path, chests, ["nodule"])
    out = run(tmp_path / "out", inputs, options(["nodule"]), findings_file=str(mine))
    with Shard(out["output"]) as shard:
        assert len(shard) == 2
    assert read_table(out["excluded"]).is_empty()


def test_a_painter_that_does_not_exist_is_refused(tmp_path):
    wrong = {"findings": {"nodule": NODULE["findings"]["nodule"] | {"painter": "brush"}}}
    lite_options = SimpleNamespace(findings=["nodule"])
    setup = Setup(files={"findings_file": str(written(tmp_path, NODULE | wrong))})
    with pytest.raises(UserError, match=r"'nodule' the painter 'brush'.*opacity"):
        engine_module("cxr.semisyn.editing", "lite").load(lite_options, setup, frozenset())
