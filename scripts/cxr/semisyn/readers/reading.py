"""Select the images of the reader study. Compute the paper's Table 7 and the readers' agreement from the answers."""

from itertools import product

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log
from cxr.base.resources import load_resource
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.metrics.intervals import draw_weights, percentile_ends, ratio_intervals
from cxr.metrics.raters import log_linear_z, measure_agreement
from cxr.plotting.encoding import encode_image
from cxr.semisyn.references import Reference, read_reference
from cxr.semisyn.shared import INTERVAL
from cxr.semisyn.shared import READERS_SEED as SEED

RESOURCE_FILES = ("semisyn/paper_tables.yaml", "columns/semisyn_readers.toml")
GENERATED, REAL = "generated", "real"
MEAN, ALL = "mean", "all"
TABLE7 = read_columns("semisyn_readers", "table7")
AGREEMENT = read_columns("semisyn_readers", "agreement")
MEASURES = ("as_real", "with_finding")
READINGS = {
    "unit": pl.String, "source": pl.String, "finding": pl.String, "readings": pl.Int64, "as_real": pl.Int64,
    "with_finding": pl.Int64,
}  # fmt: skip
"""Columns of counts per image: all readings, those that called it real, and those that named its finding."""


def count_readings(units: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Return READINGS: counts of ``answers`` (unit, expert, question, answer) on ``units`` (unit, source, finding)."""
    answer_rows = answers.with_columns(pl.concat_str(pl.lit("said_"), "question").alias("question"))
    wide = answer_rows.pivot("question", index=["unit", "expert"], values="answer").join(units, on="unit")
    counts = wide.group_by("unit", "source", "finding").agg(
        pl.len().cast(pl.Int64).alias("readings"),
        (pl.col("said_origin") == REAL).sum().cast(pl.Int64).alias("as_real"),
        (pl.col("said_finding") == pl.col("finding")).sum().cast(pl.Int64).alias("with_finding"),
    )
    return counts.select(list(READINGS)).sort("unit")


def make_table7(
    reading_table: pl.DataFrame, printed: dict, *, replicates: int, level: float, seed: int
) -> pl.DataFrame:
    """Return the paper's Table 7 from our :data:`READINGS`. ``printed``: the paper's values, such as
    {"generated_as_real": [fraction of readings for each finding, mean]}."""
    rows = []
    for source, finding in product((GENERATED, REAL), (*_findings(reading_table), MEAN)):
        part = reading_table.filter(source=source, **({} if finding == MEAN else {"finding": finding}))
        row = {"source": source, "finding": finding, "images": len(part), "answers": int(part["readings"].sum())}
        num_readings = part["readings"].to_numpy().astype(float)[:, None]
        for measure in MEASURES if len(part) else ():
            positives = part[measure].to_numpy().astype(float)[:, None]
            low, high = ratio_intervals(positives, num_readings, replicates=replicates, level=level, seed=seed)
            for end, value in (("", positives.sum() / num_readings.sum()), ("_low", low[0]), ("_high", high[0])):
                row[measure + end] = None if np.isnan(value) else round(100 * float(value), 3)
        for measure in MEASURES:
            paper = dict(zip((*FINDINGS, MEAN), printed.get(f"{source}_{measure}", ()), strict=False)).get(finding)
            row[f"{measure}_paper"] = None if paper is None else round(100 * paper, 3)
        rows.append(row)
    return pl.DataFrame(rows, schema=schema(TABLE7))


def _findings(reading_table: pl.DataFrame) -> list[str]:
    """Return the paper's findings, followed by the user's findings that have images."""
    return [*FINDINGS, *sorted(set(reading_table["finding"]) - set(FINDINGS))]


def agreement_table(
    reading_table: pl.DataFrame, readers: int, *, replicates: int, level: float, seed: int
) -> pl.DataFrame:
    """Return the readers' agreement on images that all of them read, and their d' for recognising generated images."""
    bootstrap = {"replicates": replicates, "level": level, "seed": seed}
    read_by_all, rows = reading_table.filter(readings=readers), []
    for finding, measure in product((*_findings(reading_table), ALL), MEASURES):
        part = read_by_all if finding == ALL else read_by_all.filter(finding=finding)
        statistics = measure_agreement(part[measure].to_numpy(), readers, part["unit"].to_numpy(), **bootstrap)
        d_prime_values = d_prime(part, **bootstrap) if measure == "as_real" else (None, None, None)
        rounded = (None if value is None else round(value, 4) for value in d_prime_values)
        rows.append((finding, measure, readers, statistics.units, *statistics.rounded(), *rounded))
    return pl.DataFrame(rows, schema=schema(AGREEMENT), orient="row")


def d_prime(reading_table: pl.DataFrame, *, replicates: int, level: float, seed: int) -> tuple[float | None, ...]:
    """Return (d', lower end of its interval, upper end), all None if generated or real images are missing. d' is z(p of
    generated images) - z(p of real images); p: fraction of readings that say "generated"; z: normal quantile."""
    kinds = [reading_table.filter(pl.col("source") == source) for source in (GENERATED, REAL)]
    if not all(map(len, kinds)):
        return None, None, None
    sums = [np.stack([part["readings"] - part["as_real"], part["readings"]], axis=1).astype(float) for part in kinds]
    replicate_sums = [
        np.concatenate([weight @ values for weight in draw_weights(len(values), replicates, stable_hash(seed, number))])
        if replicates else np.empty((0, 2))
        for number, values in enumerate(sums)
    ]  # fmt: skip
    values = [log_linear_z(draws[:, 0], draws[:, 1]) for draws in replicate_sums]
    low, high = percentile_ends((values[0] - values[1])[:, None], level)
    z_values = [log_linear_z(*values.sum(axis=0)[:, None])[0] for values in sums]
    return float(z_values[0] - z_values[1]), *(None if np.isnan(end[0]) else float(end[0]) for end in (low, high))


def run(*, units: str, answers: str, table7: str, agreement: str, readers: int, replicates: int) -> None:
    """Write ``table7`` (with the paper's values) and ``agreement``. ``units``: source and finding of each image."""
    reading_table = count_readings(read_table(units), read_table(answers))
    printed = load_resource(RESOURCE_FILES[0])["table7"]
    bootstrap = {"replicates": replicates, "level": INTERVAL, "seed": SEED}
    write_table(table7, make_table7(reading_table, printed, **bootstrap), TABLE7)
    write_table(agreement, agreement_table(reading_table, readers, **bootstrap), AGREEMENT)


QUESTION = "Read this X-ray."
PNG = (cv2.IMWRITE_PNG_COMPRESSION, 9)
UNITS = read_columns("semisyn_readers", "units")


def run_units(
    *, plan: str, annotations: str, edited: list[str], frames: list[str], units: str, page_units: str, images: int,
    findings: list[str], reference: dict,
) -> None:  # fmt: skip
    """Select images at random. Write the source and finding of each to ``units``, and the input of the readers' pages
    to ``page_units``. ``images``: number per finding and source (generated or real); ``reference``: settings of the
    reference with the real images. Raise UserError if there is no edited or no real image."""
    with Shards(edited) as edited_shards, Shards(frames) as frame_shards:
        fresh = read_table(plan).filter(~pl.col("trial"), pl.col("job_id").is_in(edited_shards.ids))
        jobs = fresh.select("finding", "job_id", "image_id")
        if not len(jobs):
            raise UserError(
                "all edited images were used to compare configurations, so none is left for the readers: raise "
                "semisyn.dataset.per_finding above semisyn.selection.samples"
            )
        boxes = read_reference(Reference(**reference), findings).boxes
        real = boxes.filter(pl.col("image_id").is_in(frame_shards.ids)).select("finding", "image_id").unique()
        if not len(real):
            raise UserError(
                f"semisyn.references.{reference['name']} has no image of the cohort with a finding: name another "
                "reference in semisyn.readers.reference"
            )
        candidates = {GENERATED: jobs.rows(), REAL: [(finding, "", image) for finding, image in real.iter_rows()]}
        rows, judged = [], []
        for source, source_images in candidates.items():
            ordered, used = sorted(source_images, key=lambda image: stable_hash(SEED, *image)), set()
            for finding in findings:
                finding_images = [image for image in ordered if image[0] == finding and image[1:] not in used][:images]
                used |= {image[1:] for image in finding_images}  # each image is read for one finding
                if len(finding_images) < images:
                    log.warning("readers: %s has %d %s images, not %d", finding, len(finding_images), source, images)
                for image in finding_images:
                    _, job_id, image_id = image
                    shards = edited_shards if job_id else frame_shards
                    picture = encode_image(".png", shards.get("image", job_id or image_id), PNG)
                    unit = f"{stable_hash(SEED, 'unit', *image):016x}"  # a key that reveals nothing about the image
                    rows.append((unit, source, *image))
                    judged.append((unit, picture, None, QUESTION, "", [], "", "", None, True))
    write_table(units, pl.DataFrame(rows, schema=schema(UNITS), orient="row").sort("unit"), UNITS)
    write_table(page_units, pl.DataFrame(judged, schema=schema(REVIEW_UNITS), orient="row").sort("unit"), REVIEW_UNITS)
