"""One table that accounts for the records of all stages, from source rows to scored samples."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.conservation import ALL, CONSERVED, CountRow, counted_rows
from cxr.base.tables import read_table, write_rows
from cxr.radvlm.evaluation.answers import UNKNOWN, SampleAnswer
from cxr.radvlm.evaluation.judge import UNSCORED
from cxr.radvlm.samples import CONVERSATION_TASKS

STAGE = "radvlm_evaluation"
NOT_ASKED = "not_asked"
Judged = Mapping[tuple[str, str], float | None]  # {(answers, sample): score, None if unscored}


def count_scored(answers: str, pairs: Iterable[tuple[Mapping, SampleAnswer]], judged: Judged) -> Counter[str]:
    """Return {task: number of scored samples}. A conversation counts only if the judge has scored it.

    ``answers``: ``test``, or ``exchanged`` for answers about another patient's image.
    """
    return Counter(
        line["task"]
        for line, answer in pairs
        if not answer.failure
        and (line["task"] not in CONVERSATION_TASKS or judged.get((answers, line["sample_id"])) is not None)
    )


def count_outcomes(
    answers: str, lines: Sequence[Mapping], answer_by_sample: Mapping[str, SampleAnswer], outcome: Mapping[str, int],
    scored_by_task: Mapping[str, int], judged: Judged,
) -> list[tuple[str, str, str, int]]:  # fmt: skip
    """Return rows (answers, task, outcome, number), total and per task. Raises AssertionError if a sample is lost.

    ``outcome``: {reason: number of failures}; ``scored_by_task``: {task: number of scored samples}.
    """
    tasks = Counter(line["task"] for line in lines)
    failures = sorted(Counter((line["task"], answer_by_sample[line["sample_id"]].failure) for line in lines).items())
    unscored = Counter(line["task"] for line in lines if judged.get((answers, line["sample_id"]), 0.0) is None)
    failed = {name: number for name, number in sorted(outcome.items()) if name != UNKNOWN}
    rows = [(ALL, tasks.total(), {"scored": sum(scored_by_task.values())} | failed | {UNSCORED: unscored.total()})]
    for task, number in sorted(tasks.items()):
        ends = {reason: count for (failed_task, reason), count in failures if failed_task == task and reason}
        rows.append((task, number, {"scored": scored_by_task.get(task, 0)} | ends | {UNSCORED: unscored[task]}))
    count_rows = [
        (answers, task, "asked" if name == ALL else name, count)
        for task, number, ends in rows
        for _, name, count in counted_rows(STAGE, f"samples of {answers}, {task}", number, ends)
    ]
    return count_rows + ([(answers, "", UNKNOWN, outcome[UNKNOWN])] if outcome.get(UNKNOWN) else [])


def count_not_asked(answers: str, draw: Sequence[str], tasks: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return rows (answers, task, outcome, number) of samples that the model did not get, total and per task.

    ``draw``: tables of the numbers of available and asked samples; ``tasks``: tasks that are counted, empty for all.
    """
    omitted: Counter[str] = Counter()
    for row in (row for path in draw for row in read_table(path).to_dicts()):
        if not tasks or row["task"] in tasks:
            omitted[row["task"]] += row["samples"] - row["asked"]
    numbers = [(ALL, omitted.total()), *sorted(omitted.items())]
    return [(answers, task, NOT_ASKED, number) for task, number in numbers if number]


ASKED, PASSES = "asked", "passes"
CONSERVATION: Columns = {
    "stage": Column(pl.String, "Name of the stage."),
    "of": Column(pl.String, "Source, mix, run or model of the row."),
    **CONSERVED,
}


def run(
    *, sources: Sequence[str], conversations: Sequence[str], instructions: Sequence[str], tunings: Sequence[str],
    counts: Sequence[str], conservation: str,
) -> None:  # fmt: skip
    """Join the conservation tables of all stages. Raises AssertionError if one of them does not add up."""
    paths_by_stage = {
        "radvlm_sources": sources, "radvlm_conversations": conversations, "radvlm_instructions": instructions,
        "vlm_tuning": tunings, STAGE: counts,
    }  # fmt: skip
    rows = []
    for stage, paths in paths_by_stage.items():
        for path in paths:
            name, counts_by_kind = Path(path).parent.name, defaultdict(dict)
            for record_kind, outcome, number in _table_rows(stage, read_table(path)):
                counts_by_kind[record_kind][outcome] = number
            for record_kind, parts in counts_by_kind.items():
                count_rows = counted_rows(f"{stage}, {name}", record_kind, parts.pop(ALL, 0), parts)
                rows += [(stage, name, *row) for row in count_rows]
    write_rows(conservation, rows, CONSERVATION)


def _table_rows(stage: str, table: pl.DataFrame) -> Iterator[CountRow]:
    """Yield (kind, outcome, number) of a stage's table. For tuning samples, the kind states the number of passes."""
    for row in table.iter_rows(named=True):
        if stage == "radvlm_conversations":
            kind, number = f"{row['kind']}, {row['split']}", row["conversations"]
        elif stage == "radvlm_instructions":
            kind, number = ", ".join(filter(None, (row["source"], row["what"]))), row["number"]
        elif stage == STAGE:
            kind, number = f"{row['answers']}, {row['task']}", row["number"]
        else:
            kind, number = row["what"], row["number"]
        if stage == "vlm_tuning" and kind == "samples":
            (passes,) = table.filter(what=PASSES)["number"]
            kind = f"samples of {passes} passes"
        if row["outcome"] not in (UNKNOWN, NOT_ASKED) and kind != PASSES:
            yield kind, ALL if row["outcome"] == ASKED else row["outcome"], number
