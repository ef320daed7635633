"""Outcomes of the requested samples, by task: scored, or the reason why not."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cxr.base.conservation import ALL, counted_rows
from cxr.base.tables import read_table
from cxr.radvlm.evaluation.answers import UNKNOWN, SampleAnswer
from cxr.radvlm.evaluation.conversations import TASKS
from cxr.radvlm.evaluation.judge import UNSCORED

STAGE = "radvlm_evaluation"
NOT_ASKED = "not_asked"
Judged = Mapping[tuple[str, str], float | None]
"""{(answers, sample): score, None if unscored} of the judged conversations."""


def count_scored(answers: str, pairs: Iterable[tuple[Mapping, SampleAnswer]], judged: Judged) -> Counter[str]:
    """Return {task: number of scored samples}; conversations must be judged too."""
    return Counter(
        line["task"]
        for line, answer in pairs
        if not answer.failure and (line["task"] not in TASKS or judged.get((answers, line["sample_id"])) is not None)
    )


def count_outcomes(
    answers: str, lines: Sequence[Mapping], answer_by_sample: Mapping[str, SampleAnswer], outcome: Mapping[str, int],
    scored_by_task: Mapping[str, int], judged: Judged,
) -> list[tuple[str, str, str, int]]:  # fmt: skip
    """Return rows (answers, task, outcome, number) of all requested samples ``lines`` and by task.

    ``answer_by_sample``: {sample: answer}; ``outcome``: {failure or unknown: number}; ``scored_by_task``: {task: number
    of scored samples}; ``judged``: {(answers, sample): score, None: unscored}. Raises AssertionError if scored and
    unscored samples do not add up.
    """
    tasks = Counter(line["task"] for line in lines)
    failure_counts = Counter((line["task"], answer_by_sample[line["sample_id"]].failure) for line in lines)
    unscored = Counter(line["task"] for line in lines if judged.get((answers, line["sample_id"]), 0.0) is None)
    failed = {name: number for name, number in sorted(outcome.items()) if name != UNKNOWN}
    rows = [(ALL, tasks.total(), {"scored": sum(scored_by_task.values())} | failed | {UNSCORED: unscored.total()})]
    for task, number in sorted(tasks.items()):
        ends = {
            reason: count for (key_task, reason), count in sorted(failure_counts.items()) if key_task == task and reason
        }
        rows.append((task, number, {"scored": scored_by_task.get(task, 0)} | ends | {UNSCORED: unscored[task]}))
    count_rows = [
        (answers, task, "asked" if name == ALL else name, count)
        for task, number, ends in rows
        for _, name, count in counted_rows(STAGE, f"samples of {answers}, {task}", number, ends)
    ]
    return count_rows + ([(answers, "", UNKNOWN, outcome[UNKNOWN])] if outcome.get(UNKNOWN) else [])


def count_not_asked(answers: str, draw: str | Sequence[str], tasks: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return rows (answers, task, outcome, number) of the samples that were not requested, in total and by task.

    draw: table of requested and available samples, empty if all were requested; tasks: scored tasks, empty for all.
    """
    omitted_by_task: Counter[str] = Counter()
    for row in read_table("".join(draw)).to_dicts() if draw else ():
        if not tasks or row["task"] in tasks:
            omitted_by_task[row["task"]] += row["samples"] - row["asked"]
    return [
        (answers, task, NOT_ASKED, number)
        for task, number in ((ALL, omitted_by_task.total()), *sorted(omitted_by_task.items()))
        if number
    ]
