"""Shared tools of the release tests: make packages in this process, and unpack all their content."""

import json
from contextlib import chdir
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pydicom

from conftest import SLICE
from cxr.base.exclusions import MAP_STAGES
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.seeds import shard_names
from cxr.base.tables import read_lines
from cxr.ils.dataset.mimic_ils import write_layout
from cxr.reporting.release import dicom, export_tables, package
from cxr.workflow.code_digest import code_digest
from cxr.workflow.params import stage_options
from cxr.workflow.plan_reporting import read_environments
from cxr.workflow.settings import read

SHARDS = shard_names(3)
STAGES = ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes")
LONG_KEY = "a key of more than sixteen bytes"


def make(
    run: Path,
    out: Path,
    *,
    codes: dict,
    layout: Path | str | None = None,
    cohort: Path | None = None,
    **release: object,
) -> Path:
    """Make a package of a finished run in the folder ``out``, with other settings of the section ``release``.

    ``layout``: a folder that is there, None to write one, "" for a package without.
    """
    with chdir(run):  # the cohort's paths are relative to it
        return _make(run, out, codes, layout, cohort, release)


def _make(run: Path, out: Path, codes: dict, layout: Path | str | None, cohort: Path | None, release: dict) -> Path:
    options = stage_options(read(SLICE | {"release": release}))
    results, sets = run / "results", read(SLICE).thresholds.all_sets()
    lines = {split: str(results / f"dataset/default/{split}.jsonl") for split in ("train", "validate", "test")}
    shards = {name: [str(results / f"{name}/{shard}.h5") for shard in SHARDS] for name in ("frames", "masks/default")}
    both = {"filtered": release.get("test") or [], "salt": release.get("salt") or []}
    out.mkdir(parents=True)
    export_tables.run_tables(
        **lines, **both, masks=shards["masks/default"], frames=shards["frames"],
        tables=str(out / "tables"), **settings_arguments(export_tables.run_tables, options["release"]),
    )  # fmt: skip
    if layout is None:
        layout = out / "layout"
        write_layout(**lines, masks=shards["masks/default"], layout=str(layout))
    for number, shard in enumerate(SHARDS):
        dicom.run_shard(
            lines=list(lines.values()), filtered=both["filtered"],
            cohort=str((cohort or results / "cohort") / f"{shard}.parquet"),
            masks=[shards["masks/default"][number]], frames=[shards["frames"][number]],
            segmentations=str(out / "dicom" / shard),
            **settings_arguments(dicom.run_shard, options["release_dicom"] | {"thresholds": "default"}),
        )  # fmt: skip
    params = options["release_package"]
    params |= {"environments": read_environments(params["engines"]), "thresholds": "default", "codes": codes}
    params |= {"taus": sets["default"].as_dict()}
    ledgers = [*STAGES, "masks/default", "dataset/default"]
    maps = [str(results / name / f"{shard}.h5") for name in MAP_STAGES for shard in SHARDS]
    package.run_package(
        tables=str(out / "tables"), segmentations=[str(out / "dicom" / shard) for shard in SHARDS],
        layout=[str(layout)] if layout else [], lines=list(lines.values()), **both,
        dropped=str(results / "dataset/default/dropped.parquet"),
        excluded=[str(results / name / "excluded.parquet") for name in ledgers], maps=maps,
        masks=shards["masks/default"], reports=[str(results / f"reports/{shard}.jsonl") for shard in SHARDS],
        weights=[], package=str(out / "package"), **settings_arguments(package.run_package, params),
        attrs={"code_digest": code_digest("job.py", "cxr.reporting.release.package")},
    )  # fmt: skip
    return out / "package"


def files(folder: Path) -> dict[str, bytes]:
    """Return {path: bytes} of a package; Snakemake's own mark of the time is none of its files."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".snakemake_timestamp")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def unpacked(folder: Path) -> dict[str, bytes]:
    """Return {name: bytes} of everything that a package holds: cells, inflated elements, pixels, texts, names."""
    found: dict[str, bytes] = {"names": "\n".join(files(folder)).encode()}
    for name, data in files(folder).items():
        if name.endswith(".parquet"):
            for column in (table := pl.read_parquet(folder / name)).columns:
                for row, cell in enumerate(table[column].to_list()):
                    held = cell["bytes"] if isinstance(cell, dict) and "bytes" in cell else None
                    found[f"{name}:{column}:{row}"] = pixels(held) if held else json.dumps(cell).encode()
        elif name.endswith(".dcm"):
            held = pydicom.dcmread(folder / name)
            found[name] = str(held).encode() + held.PixelData
        elif name.endswith(".png"):
            found[name] = pixels(data)
        else:
            found[name] = data
    return found


def pixels(png: bytes) -> bytes:
    return cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED).tobytes()


def sentences(run: Path) -> set[str]:
    """Return the sentences of the reports of a run, with single spaces."""
    lines = [line for shard in SHARDS for line in read_lines(run / f"results/reports/{shard}.jsonl")]
    return {" ".join(text.split()) for line in lines for text in (*line["sentences"], line["section_text"])}


def rows_of_pixels(run: Path) -> set[bytes]:
    """Return some rows of each frame, of the picture's middle, where no two are alike."""
    found = set()
    for shard in SHARDS:
        with Shard(run / f"results/frames/{shard}.h5") as frames:
            for image_id in frames.ids:
                found |= {row.tobytes() for row in frames.get("image", image_id)[200:300:10]}
    return found


def identifiers(run: Path) -> set[str]:
    """Return every identifier of a run's dataset and of the X-rays behind it."""
    found = set()
    for shard in SHARDS:
        with Shard(run / f"results/masks/default/{shard}.h5", key="mask_id") as masks:
            found |= set(masks.ids)
        for row in pl.read_parquet(run / f"results/cohort/{shard}.parquet").iter_rows(named=True):
            found |= {row[name] for name in ("subject_id", "study_id", "image_id")}
            header = pydicom.dcmread(run / row["path"], force=True, stop_before_pixels=True)
            names = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID")
            found |= {str(header.get(name)) for name in names if header.get(name)}
    return found
