"""What is drawn over all images of a source, before its lines are written: images within limits, absent findings."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from cxr.base.seeds import stable_hash
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.absent import POOL, chosen
from cxr.radvlm.instructions.blocks import Blocks
from cxr.radvlm.instructions.given import Given
from cxr.radvlm.instructions.mix import TRAIN, Row
from cxr.radvlm.instructions.tasks import ABSENT, MAKERS, PRESENT, How

UNITS = {"task": pl.String, "image_id": pl.String, "given": pl.String, "split": pl.String, "name": pl.String}
"""A pair that a task could ask. given: the split that its source gives the image; split: that of the mix."""


@dataclass(frozen=True)
class Draws:
    """kept: {(task, split): images that a limit leaves}, where there is one; absent: the absences that are asked."""

    kept: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    absent: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=POOL))

    def leaves(self, task: str, split: str, image_id: str) -> bool:
        """Return whether the limit of a task, if it has one, leaves an image."""
        kept_ids = self.kept.get((task, split))
        return kept_ids is None or image_id in kept_ids


def draw_samples(blocks: Blocks, rows: Sequence[Row], settings: How, share: float) -> Draws:
    """Return what is drawn for the rows of a source; ``share``: absences for each sample of abnormality_grounding."""
    absent = next((row for row in rows if row.task == ABSENT), None)
    counted_rows = [row for row in rows if row is not absent and (row.limits or (absent and row.task == PRESENT))]
    if not counted_rows and not absent:
        return Draws()
    reading = {
        tasks.LINES[row.task] for row in (*counted_rows, *([absent] if absent else [])) if row.task in tasks.LINES
    }
    units, pool = [], []
    for inputs in blocks.each(sorted(reading)):
        units.append(pl.DataFrame(_units(inputs, counted_rows, settings), schema=UNITS, orient="row"))
        if absent:
            pool.append(pl.DataFrame(_absences(inputs, settings), schema=POOL, orient="row"))
    unit_table = pl.concat(units)
    kept_images = {key: image_ids for row in counted_rows for key, image_ids in _kept(row, unit_table, settings.seed)}
    if not absent:
        return Draws(kept_images)
    absences = chosen(pl.concat(pool), _present(rows, unit_table, Draws(kept_images)), share)
    splits = pl.col("split").replace(dict.fromkeys(absent.splits, TRAIN))
    absence_units = absences.select(
        pl.lit(ABSENT).alias("task"), "image_id", pl.col("split").alias("given"), splits, "name"
    )
    return Draws(kept_images | dict(_kept(absent, absence_units, settings.seed)), absences)


def _units(inputs: Given, rows: Sequence[Row], settings: How) -> Iterator[tuple]:
    for row in rows:
        for unit in MAKERS[row.task](inputs, settings):
            split = inputs.images[unit.image_id]["split"]
            yield row.task, unit.image_id, split, row.split_of(split), unit.parts[0].asked


def _absences(inputs: Given, settings: How) -> Iterator[tuple]:
    for image_id, name, _ in tasks.absent(inputs):
        rank = stable_hash(settings.seed, "absent", inputs.source, image_id, name)
        yield inputs.images[image_id]["split"], name, image_id, rank


def _kept(row: Row, units: pl.DataFrame, seed: int) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield the images of a split that a limit leaves: in an order that is drawn, until they have as many pairs."""
    for split, most in row.limits.items():
        counts = units.filter(task=row.task, split=split).group_by("image_id").len()
        order = sorted(
            counts.iter_rows(), key=lambda image_count: stable_hash(seed, row.task, row.source, image_count[0])
        )
        kept_ids, count = set(), 0
        for image_id, number in order:
            if count < most:
                kept_ids.add(image_id)
                count += number
        yield (row.task, split), frozenset(kept_ids)


def _present(rows: Sequence[Row], units: pl.DataFrame, draws: Draws) -> Counter[tuple[str, str]]:
    """Return {(split of the source, finding): samples of abnormality_grounding}."""
    repeat = {row.task: row.repeat for row in rows}
    counts: Counter[tuple[str, str]] = Counter()
    for task, image_id, source_split, split, name in units.filter(task=PRESENT).iter_rows():
        if draws.leaves(task, split, image_id):
            counts[source_split, name] += repeat[task] if split == TRAIN else 1
    return counts
