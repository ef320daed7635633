"""Export the dataset as a cohort for ILS: edited images and their sources, with reports and exact lesion masks."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_folder
from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shards
from cxr.base.jobs import progress
from cxr.base.tables import read_table, write_table
from cxr.instructions.coco import CocoWriter
from cxr.semisyn.dataset import export
from cxr.semisyn.dataset.export import ExportOptions
from cxr.semisyn.dataset.job_tables import SYNTHETIC

CONTROL_REPORT = "The lungs are clear. No acute cardiopulmonary abnormality."
"""Report of a healthy source."""
MANIFEST = {
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "One study for each image."),
    "image_id": Column(pl.String, "Job, or the healthy image."),
    "image_path": Column(pl.String, "Image file, relative to the manifest."),
    "findings": Column(pl.String, "The job's prompt, or the control's sentence."),
    "view": Column(pl.String, "View, by its code."),
    "split": Column(pl.String, "Split of the patient."),
    "finding": Column(pl.String, "Finding that was put in; empty for a healthy source."),
    "source": Column(pl.String, "The healthy image itself, or the one it was made from."),
    "says": Column(pl.String, "`synthetic finding`, or `healthy source`."),
}


def run(
    *, images: str, boxes: str, healthy: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str],
    folder: str | Path, options: ExportOptions,
) -> None:  # fmt: skip
    """Write ``manifest.csv``, ``images/*.png`` (frames) and ``truth.json`` (COCO), in which sources have no region."""
    source = export.ImageSource(read_table(images), read_table(boxes), edited, [], [], options)
    pool = read_table(healthy).filter(pl.col("image_id").is_in(source.images["image_id"].implode())).sort("image_id")
    views = dict(pool.select("image_id", "view").iter_rows())
    with (
        atomic_folder(folder) as staging_dir,
        CocoWriter(staging_dir / "truth.json", {"description": SYNTHETIC}, export.coco_categories(options)) as truth,
    ):
        (staging_dir / "images").mkdir()
        rows = [
            _manifest_row(facts | {"view": views[facts["image_id"]]}, facts["job_id"], facts["prompt"])
            | {"finding": facts["finding"], "says": SYNTHETIC}
            for facts in source.images.iter_rows(named=True)
        ]
        for picture in progress(source, len(source.images), "cohort"):
            export.add_coco_image(truth, picture, b"", options)
            (staging_dir / "images" / f"{picture.facts['job_id']}.png").write_bytes(picture.png())
        with Shards(frames) as shards:
            for facts in pool.iter_rows(named=True):
                grey = shards.get("image", facts["image_id"])
                name = f"{facts['image_id']}.png"
                (staging_dir / "images" / name).write_bytes(export.encode_png(grey, "healthy source"))
                truth.image(file_name=name, height=grey.shape[0], width=grey.shape[1], split=facts["split"])
                row = _manifest_row(facts, facts["image_id"], CONTROL_REPORT)
                rows.append(row | {"finding": "", "says": "healthy source"})
        table = pl.DataFrame(rows, schema=schema(MANIFEST)).sort("image_id")
        write_table(staging_dir / "manifest.csv", table, MANIFEST)


def _manifest_row(facts: dict, name: str, report: str) -> dict:
    """Return a row of :data:`MANIFEST`; the report begins with a capital and ends with a full stop."""
    text = report.strip()
    text = text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
    row = {key: facts[key] for key in ("subject_id", "view", "split")} | {"image_id": name, "source": facts["image_id"]}
    return row | {"study_id": f"study-{name}", "image_path": f"images/{name}.png", "findings": text}
