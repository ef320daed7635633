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
        kept = self.kept.get((task, split))
        return kept is None or image_id in kept


def drawn(blocks: Blocks, rows: Sequence[Row], how: How, share: float) -> Draws:
    """Return what is drawn for the rows of a source; ``share``: absences for each sample of abnormality_grounding."""
    absent = next((row for row in rows if row.task == ABSENT), None)
    counted = [row for row in rows if row is not absent and (row.limits or (absent and row.task == PRESENT))]
    if not counted and not absent:
        return Draws()
    reading = {tasks.LINES[row.task] for row in (*counted, *([absent] if absent else [])) if row.task in tasks.LINES}
    units, pool = [], []
    for given in blocks.each(sorted(reading)):
        units.append(pl.DataFrame(_units(given, counted, how), schema=UNITS, orient="row"))
        if absent:
            pool.append(pl.DataFrame(_absences(given, how), schema=POOL, orient="row"))
    found = pl.concat(units)
    kept = {key: some for row in counted for key, some in _kept(row, found, how.seed)}
    if not absent:
        return Draws(kept)
    asked = chosen(pl.concat(pool), _present(rows, found, Draws(kept)), share)
    splits = pl.col("split").replace(dict.fromkeys(absent.splits, TRAIN))
    told = asked.select(pl.lit(ABSENT).alias("task"), "image_id", pl.col("split").alias("given"), splits, "name")
    return Draws(kept | dict(_kept(absent, told, how.seed)), asked)


def _units(given: Given, rows: Sequence[Row], how: How) -> Iterator[tuple]:
    for row in rows:
        for unit in MAKERS[row.task](given, how):
            split = given.images[unit.image_id]["split"]
            yield row.task, unit.image_id, split, row.split_of(split), unit.parts[0].asked


def _absences(given: Given, how: How) -> Iterator[tuple]:
    for image_id, name, _ in tasks.absent(given):
        rank = stable_hash(how.seed, "absent", given.source, image_id, name)
        yield given.images[image_id]["split"], name, image_id, rank


def _kept(row: Row, units: pl.DataFrame, seed: int) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield the images of a split that a limit leaves: in an order that is drawn, until they have as many pairs."""
    for split, most in row.limits.items():
        counts = units.filter(task=row.task, split=split).group_by("image_id").len()
        order = sorted(counts.iter_rows(), key=lambda one: stable_hash(seed, row.task, row.source, one[0]))
        kept, count = set(), 0
        for image_id, number in order:
            if count < most:
                kept.add(image_id)
                count += number
        yield (row.task, split), frozenset(kept)


def _present(rows: Sequence[Row], units: pl.DataFrame, draws: Draws) -> Counter[tuple[str, str]]:
    """Return {(split of the source, finding): samples of abnormality_grounding}."""
    repeat = {row.task: row.repeat for row in rows}
    found: Counter[tuple[str, str]] = Counter()
    for task, image_id, given, split, name in units.filter(task=PRESENT).iter_rows():
        if draws.leaves(task, split, image_id):
            found[given, name] += repeat[task] if split == TRAIN else 1
    return found
