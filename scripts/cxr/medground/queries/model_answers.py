"""The engine vllm: read what a language model answered; nothing is asked here, so that reading again costs nothing."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.medground.queries.given import Given, raw


def read_answers(path: str | Path) -> dict[str, dict]:
    """Return {image_id: its line} of a file of answers (:mod:`cxr.medground.queries.ask_model`)."""
    return {line["image_id"]: line for line in read_lines(path)}


def answer_of(answers: Mapping[str, dict], image_id: str) -> dict:
    """Return the line of an image. Raises UserError where the answers are of other images."""
    if image_id not in answers:
        raise UserError(
            f"medground_queries_told has no answer for the image {image_id}: ask again with "
            "`snakemake --forcerun medground_queries_told`"
        )
    return answers[image_id]


def wordings(line: Mapping) -> Iterator[tuple[int, Given | None, str]]:
    """Yield (number, query, reason) of every wanted query of an image: a query, or the reason why there is none.

    Where the model chose targets and gave more queries than were wanted, all of them were.
    """
    for number, reason in line["lost"]:
        yield number, None, reason
    numbers = range(line["wanted"]) if line["targets"] is None else [at for at, _ in line["targets"]]
    if line["answer"] is None:
        yield from ((number, None, "quarantined") for number in numbers)
        return
    queries = _said(line["answer"])
    if line["targets"] is not None:
        for number, query in zip(numbers, queries, strict=True):
            yield (number, query, "") if query.text else (number, None, "declined")
        return
    worded_queries = [query for query in queries if query.text]
    for number in range(max(len(worded_queries), line["wanted"])):
        if number < len(worded_queries):
            yield number, worded_queries[number], ""
        else:
            yield number, None, "declined" if number < len(queries) else "not_given"


def _said(answer: dict | str) -> list[Given]:
    if isinstance(answer, str):
        return list(raw(answer))
    return [
        Given(" ".join(entry["text"].split()), tuple(at - 1 for at in entry["targets"])) for entry in answer["queries"]
    ]
