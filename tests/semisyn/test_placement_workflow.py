"""The stages in the workflow: priors fitted to a reference, a user's finding, the figure, and the same boxes again."""

import shutil

import numpy as np
import polars as pl
import pytest

from annotation_files import write_coco
from conftest import SLICE, snakemake, write_settings
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.base.vocabulary import FINDINGS
from cxr.geometry.affine import points_to_original
from cxr.geometry.boxes import bounding_box
from cxr.semisyn.findings.catalogue import read_catalogue
from declared_tables import tables_of
from nodules import NODULE, written

HEALTHY = {"views": ["PA", "AP"], "lite": {"opacity": 1.0, "other_lesions": 1.0, "ctr": 1.0, "ctr_ap": 1.0}}
"""A screen that lets more of the few films of the slice pass."""


@pytest.fixture(scope="module")
def placed(workflow_run, tmp_path_factory):
    """A run of both stages on the slice, with nodules, and opacities of the other films as the reference of the fit."""
    run = tmp_path_factory.mktemp("placed") / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    regions = []
    for path in sorted((run / "results/organs").glob("0?.h5")):
        with Shard(path) as organs, Shard(run / "results/frames" / path.name) as frames:
            for name in organs.ids:
                x1, y1, x2, y2 = bounding_box(organs.masks(name)["right lung"])
                w, h = x2 - x1, y2 - y1
                for k in range(3):
                    corners = np.array([[0.1 + 0.05 * k, 0.4], [0.6 + 0.1 * k, 0.7 + 0.05 * k]]) * [w, h] + [x1, y1]
                    original = points_to_original(corners, frames.get("to_original", name))
                    regions.append(Annotation(f"{name}.png", "Lung Opacity", tuple(original.ravel().tolist())))
    write_coco(run / "people.json", Annotations(regions, set()))
    semisyn = {
        "findings": [*FINDINGS, "nodule"],
        "findings_file": str(written(tmp_path_factory.mktemp("mine"), NODULE)),
        "healthy": HEALTHY | {"exclude_patients": False},
        "references": {"people": {"format": "coco", "path": "people.json", "role": "train"}},
        "priors": {"source": "fit", "reference": "people", "min_boxes": 5},
        "placement": {"most_per_image": 12},
    }
    write_settings(run, SLICE | {"semisyn": semisyn | {"priors": {}}})
    snakemake(run, "semisyn_placement", "semisyn_priors")
    return run, semisyn


@pytest.mark.slow
def test_boxes_of_all_findings_are_placed_and_accounted_for(placed):
    run, _ = placed
    folder = run / "results/semisyn/placement"
    plan, gone = read_table(folder / "plan.parquet"), read_table(folder / "excluded.parquet")
    boxes = pl.concat([read_table(path) for path in sorted(folder.glob("0?.parquet"))])
    assert set(plan["finding"]) == {*FINDINGS, "nodule"}
    assert sorted([*boxes["job_id"].unique(), *gone["image_id"]]) == sorted(plan["job_id"])
    assert boxes.filter(finding="nodule").height >= 6
    assert not any(tables_of(run).values())
    assert (run / "results/semisyn/priors/priors.png").stat().st_size > 20_000


@pytest.mark.slow
def test_a_fit_re_runs_priors_and_placement_and_keeps_prompts(placed, tmp_path):
    run, semisyn = placed
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    plan = read_table(copy / "results/semisyn/placement/plan.parquet")
    write_settings(copy, SLICE | {"semisyn": semisyn})
    done = snakemake(copy, "semisyn_priors")
    assert "organs_shard" not in done.stderr
    told = read_catalogue(semisyn["findings_file"], copy / "results/semisyn/priors/priors.yaml")
    assert told.findings["opacity"].prior.origin == "fit"
    assert told.findings["edema"].prior.origin == "paper"
    assert told.lungs == "CheXmask; fitted ones: lite"
    fits = read_table(copy / "results/semisyn/priors/fits.tsv")
    assert fits.filter(finding="opacity", selected=True)["n"].min() >= 5
    assert plan["prompt"].n_unique() > 10
