"""Conservation of a tuning's lines and samples; inputs and outcomes are counted independently."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from cxr.base.conservation import ALL, CountRow, counted_rows
from cxr.base.tables import read_lines
from cxr.vlm.samples import parse_sample
from cxr.vlm.tuning.fit import TuningLog, TuningLoop, epoch_order

STAGE = "vlm_tuning"


def count_lines(path: str, tasks: Sequence[str], learned: int, excluded_rows: Sequence[Mapping]) -> list[CountRow]:
    """Return the counts of a file's lines: ``learned``, of a task outside ``tasks``, or excluded (``excluded_rows``).

    Raises AssertionError if a line was lost.
    """
    with open(path, "rb") as file:
        number = sum(1 for _ in file)
    num_other_tasks = sum(parse_sample(line).task not in tasks for line in read_lines(path)) if tasks else 0
    reason_counts = Counter(row["reason"] for row in excluded_rows)
    return counted_rows(
        STAGE,
        "lines",
        number,
        {"learned": learned, "other_task": num_other_tasks} | dict(sorted(reason_counts.items())),
    )


def count_pass(size: int, learned: int, order: Sequence[int]) -> list[CountRow]:
    """Return the counts of one pass of ``size`` samples: those ``learned``, and those that balancing repeats.

    ``order``: indices of its samples. Raises AssertionError if one is missing.
    """
    return counted_rows(STAGE, "pass", size, {"learned": learned, "again": len(order) - len(set(order))})


def count_passes(fit: TuningLoop, course: TuningLog) -> list[CountRow]:
    """Return the counts of the samples of all started passes (seen, dropped with an incomplete batch, or after the last
    step), and of the samples of all steps by task.

    Seen samples are counted by all ranks in their batches, before and after an interruption. Raises AssertionError if a
    sample was seen too often or not at all.
    """
    recipe, size = fit.recipe, len(fit.lengths)
    passes = math.ceil(recipe.updates / fit.per_epoch) if recipe.updates else recipe.epochs
    smaller = size % recipe.batch if recipe.drop_last and size >= recipe.batch else 0
    last = epoch_order(fit.lengths, recipe.batch, fit.seed, passes - 1, recipe.drop_last)
    behind = last[fit.total - (passes - 1) * fit.per_epoch :]
    ends = {"seen": sum(course.seen.values()), "drop_last": passes * smaller, "not_reached": sum(map(len, behind))}
    return [
        ("passes", ALL, passes),
        *counted_rows(STAGE, "samples", passes * size, ends),
        *counted_rows(STAGE, "updates", sum(row["samples"] for row in course.updates), course.seen),
    ]
