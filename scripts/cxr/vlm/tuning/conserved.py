"""What became of the lines of a tuning, and of the samples of its passes over them; each side is counted on its own."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from cxr.base.conservation import ALL, Counted, conserved
from cxr.base.tables import read_lines
from cxr.vlm.samples import sample_of
from cxr.vlm.tuning.fit import Course, Fit, epoch_order

WHERE = "vlm_tuning"


def of_lines(path: str, tasks: Sequence[str], learned: int, excluded_rows: Sequence[Mapping]) -> list[Counted]:
    """Return what became of the lines of a file: ``learned``, of another task than ``tasks`` (if there are some), or
    left out, ``excluded_rows``. Raises AssertionError where a line was lost.
    """
    with open(path, "rb") as file:
        number = sum(1 for _ in file)
    num_other_tasks = sum(sample_of(line).task not in tasks for line in read_lines(path)) if tasks else 0
    reason_counts = Counter(row["reason"] for row in excluded_rows)
    return conserved(
        WHERE,
        "lines",
        number,
        {"learned": learned, "other_task": num_other_tasks} | dict(sorted(reason_counts.items())),
    )


def of_pass(size: int, learned: int, order: Sequence[int]) -> list[Counted]:
    """Return of which samples a pass of ``size`` is: those ``learned``, and again those that a balance repeats.

    ``order``: numbers of its samples. Raises AssertionError where one is missing.
    """
    return conserved(WHERE, "pass", size, {"learned": learned, "again": len(order) - len(set(order))})


def of_passes(fit: Fit, course: Course) -> list[Counted]:
    """Return what became of the samples of all passes that were begun: seen, or of an epoch's smaller update that is
    left out, or behind the last update; and the samples of all updates, by task.

    What was seen is what all ranks have counted in their batches, before a kill and after it. Raises AssertionError
    where a sample was seen too often, or not at all.
    """
    recipe, size = fit.recipe, len(fit.lengths)
    passes = math.ceil(recipe.updates / fit.per_epoch) if recipe.updates else recipe.epochs
    smaller = size % recipe.batch if recipe.drop_last and size >= recipe.batch else 0
    last = epoch_order(fit.lengths, recipe.batch, fit.seed, passes - 1, recipe.drop_last)
    behind = last[fit.total - (passes - 1) * fit.per_epoch :]
    ends = {"seen": sum(course.seen.values()), "drop_last": passes * smaller, "not_reached": sum(map(len, behind))}
    return [
        ("passes", ALL, passes),
        *conserved(WHERE, "samples", passes * size, ends),
        *conserved(WHERE, "updates", sum(row["samples"] for row in course.updates), course.seen),
    ]
