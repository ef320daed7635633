"""Stage III by a language model: reads its answers. A query without a usable answer is rejected."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.llm.guards import neutralize
from cxr.medground.verification.judge import Judgement

MAX_DETAIL = 200
"""Longest reason of a judge in the table of rejected queries, in characters."""

Answers = Mapping[str, Mapping[str, Mapping]]
"""{confirm or select: {query_id: the line of the model's answer}}."""


def read_answers(paths: Mapping[str, str | Path]) -> Answers:
    """Return the answers of the files {confirm or select: path} (:mod:`cxr.medground.verification.ask_judge`)."""
    return {way: {line["query_id"]: line for line in read_lines(path)} for way, path in paths.items()}


def judge_from_answers(query_id: str, regions: Sequence[int], answers: Answers) -> Judgement:
    """Return the judgement of a query with the answer ``regions``; confirm is read before select.

    Raises UserError if a query has no answer.
    """
    observed = []
    for way, line_by_query in sorted(answers.items()):
        if query_id not in line_by_query:
            raise UserError(
                f"medground_verification_told has no answer for the query {query_id}: ask again with "
                "`snakemake --forcerun medground_verification_told`"
            )
        answer = line_by_query[query_id]["answer"]
        if answer is None:
            return Judgement(
                "rejected", "judge_failed", tuple(observed), f"{way}: {line_by_query[query_id]['problem']}"
            )
        observed.append({"asked": way} | answer)
        if reason := _confirm_fault(answer) if way == "confirm" else _select_fault(answer, regions):
            return Judgement("rejected", reason, tuple(observed), _detail(answer))
    return Judgement("grounded", "", tuple(observed))


def _confirm_fault(answer: Mapping) -> str:
    if not answer["grounded"]:
        return "not_grounded"
    return "" if answer["unambiguous"] else "ambiguous_seen"


def _select_fault(answer: Mapping, regions: Sequence[int]) -> str:
    return "" if sorted(answer["targets"]) == sorted(region + 1 for region in regions) else "other_target"


def _detail(answer: Mapping) -> str:
    """Return the judge's neutralized reason, or the numbers it selected."""
    if "targets" in answer:
        return f"selected {', '.join(map(str, sorted(answer['targets']))) or 'none'}"
    return neutralize(answer["reason"])[:MAX_DETAIL]
