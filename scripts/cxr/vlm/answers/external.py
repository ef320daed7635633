"""Answers of an external model: the lines of a set, and a table of the file's unused lines."""

import logging
from collections import Counter
from collections.abc import Mapping

import polars as pl

from cxr.base.columns import schema
from cxr.base.tables import read_lines, write_table
from cxr.vlm.answers.ask import run_answers
from cxr.vlm.answers.columns import UNUSED
from cxr.vlm.answers.engine import AnswersOptions
from cxr.vlm.answers.table import BAD_LINE, DUPLICATE, read_answer_file

log = logging.getLogger("cxr")


def run_external(
    *,
    lines: str,
    pictures: list[str],
    base: str,
    answers: str,
    unused: str,
    options: AnswersOptions,
    attrs: dict,
    compute: dict,
    folders: Mapping[str, str] | None = None,
) -> None:
    """Write the answers in the file ``base`` to the samples ``lines``, and the table ``unused`` of its other lines.

    Raises UserError for a file that is not text.
    """
    run_answers(
        lines=lines, pictures=pictures, base=base, answers=answers, options=options, attrs=attrs, compute=compute,
        folders=folders,
    )  # fmt: skip
    answer_file, asked_turns = (
        read_answer_file(base),
        {(line["sample_id"], line["turn"]) for line in read_lines(answers)},
    )
    rows = [(number, "", BAD_LINE) for number in answer_file.bad_lines]
    rows += [(number, name, DUPLICATE) for number, name in answer_file.duplicates]
    rows += [(number, at[0], "unknown_sample") for at, number in answer_file.lines.items() if at not in asked_turns]
    for reason, count in sorted(Counter(reason for _, _, reason in rows).items()):
        log.warning("%d lines of the external answers are excluded: %s", count, reason)
    write_table(unused, pl.DataFrame(sorted(rows), schema=schema(UNUSED), orient="row"), UNUSED)
