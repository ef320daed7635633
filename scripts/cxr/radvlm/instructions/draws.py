"""Random selections over all images of a source, made before its lines: images within limits, absent findings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cxr.base.seeds import stable_hash
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.mix import TRAIN, MixRow
from cxr.radvlm.instructions.source_block import Blocks
from cxr.radvlm.instructions.tasks import ABSENT, PRESENT, UNITS_BY_TASK, TaskOptions

ABSENCES_PER_SAMPLE = 1.0
"""Questions about absent findings per sample of abnormality_grounding."""
UNIT_SCHEMA = {
    "task": pl.String,
    "image_id": pl.String,
    "source_split": pl.String,
    "split": pl.String,
    "name": pl.String,
}
"""A unit that a task could use. source_split: split of the source; split: split of the mix."""


@dataclass(frozen=True)
class SampleDraws:
    """images_within_limit: {(task, split): images}, where there is a limit; absent: the selected absences."""

    images_within_limit: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    absent: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=ABSENCE_SCHEMA))

    def keeps(self, task: str, split: str, image_id: str) -> bool:
        """True if the limit of a task, if any, keeps an image."""
        kept_ids = self.images_within_limit.get((task, split))
        return kept_ids is None or image_id in kept_ids


def draw_samples(blocks: Blocks, rows: Sequence[MixRow], settings: TaskOptions) -> SampleDraws:
    """Return the selections for the mix rows of a source."""
    absent = next((row for row in rows if row.task == ABSENT), None)
    counted_rows = [row for row in rows if row is not absent and (row.limits or (absent and row.task == PRESENT))]
    if not counted_rows and not absent:
        return SampleDraws()
    drawn_tasks = {row.task for row in (*counted_rows, absent) if row is not None}
    units, pool = [], []
    for inputs in blocks.each(sorted({tasks.LINES_BY_TASK[task] for task in drawn_tasks & tasks.LINES_BY_TASK.keys()})):
        splits = {image_id: row["split"] for image_id, row in inputs.images.items()}
        for row in counted_rows:
            for unit in UNITS_BY_TASK[row.task](inputs, settings):
                split = splits[unit.image_id]
                units.append((row.task, unit.image_id, split, row.split_of(split), unit.parts[0].target))
        for image_id, name, _ in tasks.find_absences(inputs) if absent else ():
            rank = stable_hash(settings.seed, "absent", inputs.source, image_id, name)
            pool.append((splits[image_id], name, image_id, rank))
    unit_table = pl.DataFrame(units, schema=UNIT_SCHEMA, orient="row")
    kept_images = dict(pair for row in counted_rows for pair in _images_within_limits(row, unit_table, settings.seed))
    if not absent:
        return SampleDraws(kept_images)
    present = _count_present(rows, unit_table, SampleDraws(kept_images))
    pool_table = pl.DataFrame(pool, schema=ABSENCE_SCHEMA, orient="row")
    absences = select_absences(pool_table, present, ABSENCES_PER_SAMPLE)
    mix_split = pl.col("split").replace(dict.fromkeys(absent.splits, TRAIN))
    absence_units = absences.select("image_id", "name", task=pl.lit(ABSENT), source_split="split", split=mix_split)
    return SampleDraws(kept_images | dict(_images_within_limits(absent, absence_units, settings.seed)), absences)


def _images_within_limits(
    row: MixRow, units: pl.DataFrame, seed: int
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield ((task, split), images): images in hash order until their units reach the limit."""
    for split, most in row.limits.items():
        counts = units.filter(task=row.task, split=split).group_by("image_id").len()
        order = sorted(counts.iter_rows(), key=lambda count: stable_hash(seed, row.task, row.source, count[0]))
        kept_ids, count = set(), 0
        for image_id, number in order:
            if count < most:
                kept_ids.add(image_id)
                count += number
        yield (row.task, split), frozenset(kept_ids)


def _count_present(rows: Sequence[MixRow], units: pl.DataFrame, draws: SampleDraws) -> Counter[tuple[str, str]]:
    """Return {(split of the source, finding): samples of abnormality_grounding}."""
    repeat = {row.task: row.repeat for row in rows}
    counts: Counter[tuple[str, str]] = Counter()
    for task, image_id, source_split, split, name in units.filter(task=PRESENT).iter_rows():
        if draws.keeps(task, split, image_id):
            counts[source_split, name] += repeat[task] if split == TRAIN else 1
    return counts


ABSENCE_SCHEMA = {"split": pl.String, "name": pl.String, "image_id": pl.String, "rank": pl.UInt64}
"""Schema of absent findings; rank: stable hash that orders the selection."""


def select_absences(pool: pl.DataFrame, present: Mapping[tuple[str, str], int], share: float) -> pl.DataFrame:
    """Select absences from a ``pool``, so that a finding's name does not reveal whether it is present.

    ``present``: {(split, finding): samples of abnormality_grounding}; ``share``: absences per sample. Each finding gets
    its quota, first by rank; if it has too few, other findings that are present in the split fill up.
    """
    rows = [(split, name, round(share * count)) for (split, name), count in present.items()]
    quotas = pl.DataFrame(rows, schema={"split": pl.String, "name": pl.String, "wanted": pl.Int64}, orient="row")
    pool = pool.join(quotas, on=["split", "name"]).sort("rank", "name", "image_id")
    within_quota = pl.int_range(pl.len()).over("split", "name") < pl.col("wanted")
    selected, surplus = pool.filter(within_quota), pool.filter(~within_quota)
    total = quotas.group_by("split").agg(pl.sum("wanted").alias("total"))
    had = selected.group_by("split").agg(pl.len().cast(pl.Int64).alias("had"))
    lacking = total.join(had, on="split", how="left").select(
        "split", lacks=pl.col("total") - pl.col("had").fill_null(0)
    )
    substitutes = surplus.join(lacking, on="split").sort("rank", "name", "image_id")
    substitutes = substitutes.filter(pl.int_range(pl.len()).over("split") < pl.col("lacks"))
    return pl.concat([selected, substitutes.select(selected.columns)]).select(list(ABSENCE_SCHEMA))
