"""The target `real` on some real X-rays: images without a report get maps, images without a chest are excluded."""

import sys
from pathlib import Path
from subprocess import run

import polars as pl
import pytest

from conftest import ROOT
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real_run(shared, tmp_path_factory):
    directory = tmp_path_factory.mktemp("real")
    # the documented command, with this Python's packages and without installing them again
    command = ["make", "-f", "experiments/Makefile", "real", "-o", ".venv/run.stamp", "EVERY=6"]
    command += [f"BIN={Path(sys.executable).parent}"]
    command += [f"REAL={directory}", f"CXR_ILS_SHARED={shared}"]
    done = run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert str(directory / "results/report.html") in done.stdout
    assert (directory / "results/report.html").stat().st_size > 1_000_000
    return directory


def test_every_image_ends_somewhere(real_run):
    results = real_run / "results"
    manifest = pl.read_csv(real_run / "manifest.csv", infer_schema=False)
    funnel = read_table(results / "tables/funnel.tsv")
    assert funnel["remaining"][0] == len(manifest)
    assert funnel["images"].sum() - funnel["images"][0] == len(manifest)
    assert set(read_table(results / "tables/conservation.tsv")["balanced"]) == {"yes"}


def test_images_without_a_report_get_maps_and_the_reason(real_run):
    results = real_run / "results"
    reasons = {row["image_id"]: row["reason"] for row in read_table(results / "reports/excluded.parquet").to_dicts()}
    nih = {name for name in reasons if name.startswith("nih-")}
    assert nih
    assert {reasons[name] for name in nih} == {"no_report"}
    mapped = set()
    for path in (results / "anomaly").glob("*.h5"):
        with Shard(path) as shard:
            mapped |= set(shard.ids)
    assert len(nih & mapped) >= 0.8 * len(nih)


def test_notes_become_pairs(real_run):
    lines = [
        line
        for split in ("train", "validate", "test")
        for line in read_lines(real_run / f"results/dataset/default/{split}.jsonl")
    ]
    assert {line["study_id"].split("-")[0] for line in lines} == {"covid"}
    assert any(not line["seg"] for line in lines)
