"""Queries that others wrote: a user's table (JSON Lines, or the paper's raw form), or a language model's answers."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.errors import UserError
from cxr.base.ids import clean_id
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_rows
from cxr.base.user_tables import read_text
from cxr.medground.logic.facts import GRID_CORNERS

KEY = "medground.queries.table"
UNUSED: Columns = {
    "image_id": Column(pl.String, "Image that the table names."),
    "number": Column(pl.Int64, "Which of its texts, from 0."),
    "query": Column(pl.String, "The text."),
    "reason": Column(
        pl.String,
        "unknown_image: no source has it; excluded: a source left it out; no_regions: it has none that could be meant; "
        "no_text: its file has no `Question:` with an `Answer:`.",
    ),
}
"""Columns of the table of unused texts."""
_RAW = re.compile(r"Question:\s*(.+?)\s*\n\s*Answer:\s*(.+?)\s*(?=\n\s*Question:|\Z)", re.DOTALL)


@dataclass(frozen=True)
class WrittenQuery:
    """A text with its answer: numbers of regions, or boxes on the grid of 1000."""

    text: str
    regions: tuple[int, ...] | None
    boxes: tuple[tuple[int, ...], ...] = ()


def read_written_queries(path: str | Path) -> dict[str, list[WrittenQuery]]:
    """Return {image_id: queries} of a JSON Lines file, or of a folder of ``{image_id}.txt`` in the raw form.

    A line has image_id, query, and regions or boxes. Raises UserError for a malformed line.
    """
    queries_by_image: dict[str, list[WrittenQuery]] = {}
    path = Path(path)
    if path.is_dir():
        for file in sorted(path.glob("*.txt")):
            queries_by_image[clean_id(file.stem)] = list(parse_raw_queries(read_text(file, KEY)))
        return queries_by_image
    for number, text in enumerate(read_text(path, KEY).splitlines(), 1):
        if text.strip():
            image_id, query = _parse_line(text, number, path.name)
            queries_by_image.setdefault(image_id, []).append(query)
    return queries_by_image


def _parse_line(text: str, number: int, name: str) -> tuple[str, WrittenQuery]:
    try:
        row = json.loads(text)
        regions = None if row.get("regions") is None else tuple(int(region) for region in row["regions"])
        boxes = tuple(tuple(box) for box in row["boxes"]) if regions is None else ()
        return clean_id(row["image_id"]), WrittenQuery(str(row["query"]), regions, boxes)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{KEY}: line {number} of {name} lacks or misstates {error}"
        raise UserError(f"{message}: give image_id, query, and regions or boxes") from None


def parse_raw_queries(text: str) -> Iterator[WrittenQuery]:
    """Yield the queries of the paper's raw form; an answer that is not JSON gets no box, so that it fails stage I."""
    for question, answer in _RAW.findall(text.strip()):
        try:
            value = json.loads(answer)
            entries = value if isinstance(value, list) else [value]
            boxes = tuple(tuple(entry["bbox_2d"]) for entry in entries)
        except (ValueError, KeyError, TypeError):
            boxes = ()
        yield WrittenQuery(" ".join(question.split()), None, boxes)


def match_regions(query: WrittenQuery, rows: Sequence[Mapping]) -> tuple[tuple[int, ...], list[list[int]]]:
    """Return a query's regions and its boxes on the grid; no regions if a box is not exactly a candidate's."""
    if query.regions is not None:
        row_by_region = {row["region"]: row for row in rows}
        region_rows = [row_by_region[region] for region in query.regions if region in row_by_region]
        return query.regions, [[row[side] for side in GRID_CORNERS] for row in region_rows]
    region_by_box = {tuple(row[side] for side in GRID_CORNERS): row["region"] for row in rows if row["candidate"]}
    regions = tuple(region_by_box[box] for box in query.boxes if box in region_by_box)
    return (regions if len(regions) == len(query.boxes) else ()), [list(box) for box in query.boxes]


def run_unused(
    *, text_files: list[str], queries: Sequence[str], images: Sequence[str], excluded: Sequence[str], unused: str
) -> None:
    """Write the unused texts of the table with a reason each, and log their number.

    ``queries``: candidates of all sources; ``images``, ``excluded``: the sources' tables. Raises AssertionError if a
    text about an image with candidates is missing among these.
    """
    queries_by_image = read_written_queries(text_files[0])
    texts_by_image: dict[str, set[str]] = {}
    for path in queries:
        for line in read_lines(path):
            texts_by_image.setdefault(line["image_id"], set()).add(line["query"])
    image_ids, excluded_ids = (
        {image_id for path in paths for image_id in read_table(path)["image_id"]} for paths in (images, excluded)
    )
    rows = []
    for image_id, texts in sorted(queries_by_image.items()):
        if image_id in texts_by_image and texts:
            if missing_texts := [query.text for query in texts if query.text not in texts_by_image[image_id]]:
                raise AssertionError(
                    f"medground, {image_id}: {len(missing_texts)} of {len(texts)} supplied texts are no candidate"
                )
            continue
        reason = "no_regions" if image_id in image_ids else "excluded" if image_id in excluded_ids else "unknown_image"
        rows += [
            {"image_id": image_id, "number": number, "query": query.text, "reason": reason}
            for number, query in enumerate(texts)
        ]
        if not texts:  # a file of the raw form without a question and an answer
            rows.append({"image_id": image_id, "number": 0, "query": "", "reason": "no_text"})
    if rows:
        log.warning(
            "medground.queries.table: %d of %d texts are about images that no source has, or that have no regions, "
            "such as %s (%s): see %s", len(rows), sum(map(len, queries_by_image.values())),
            rows[0]["image_id"], rows[0]["reason"], Path(unused).name,
        )  # fmt: skip
    write_rows(unused, rows, UNUSED)


def read_answers(path: str | Path) -> dict[str, dict]:
    """Return {image_id: line} of a file of :mod:`cxr.medground.queries.ask_model`."""
    return {line["image_id"]: line for line in read_lines(path)}


def get_answer(answers: Mapping[str, dict], image_id: str) -> dict:
    """Return the line of an image. Raises UserError if there is none."""
    if image_id not in answers:
        raise UserError(
            f"medground_queries_told has no answer for the image {image_id}: ask again with "
            "`snakemake --forcerun medground_queries_told`"
        )
    return answers[image_id]


def parse_answer(line: Mapping) -> Iterator[tuple[int, WrittenQuery | None, str]]:
    """Yield (number, query or None, reason) for every requested query of an image.

    If the model chose the targets and wrote more queries than requested, all are used.
    """
    for number, reason in line["lost"]:
        yield number, None, reason
    numbers = range(line["wanted"]) if line["targets"] is None else [at for at, _ in line["targets"]]
    if line["answer"] is None:
        yield from ((number, None, "quarantined") for number in numbers)
        return
    queries = _parse_queries(line["answer"])
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


def _parse_queries(answer: dict | str) -> list[WrittenQuery]:
    if isinstance(answer, str):
        return list(parse_raw_queries(answer))
    return [
        WrittenQuery(" ".join(entry["text"].split()), tuple(at - 1 for at in entry["targets"]))
        for entry in answer["queries"]
    ]
