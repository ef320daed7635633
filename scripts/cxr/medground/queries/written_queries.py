"""Queries that a user or a language model wrote. A user's table is a JSON Lines file, or a folder in the paper's raw
form (``Question:`` and ``Answer:`` lines)."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cxr.base.columns import read_columns
from cxr.base.errors import UserError
from cxr.base.ids import clean_id
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_rows
from cxr.base.user_tables import read_text
from cxr.medground.logic.facts import GRID_CORNERS

KEY = "medground.queries.table"
RESOURCE_FILES = ("columns/medground_queries.toml",)
UNUSED = read_columns("medground_queries", "unused")
"""Columns of the table of texts that did not become queries."""
_RAW = re.compile(r"Question:\s*(.+?)\s*\n\s*Answer:\s*(.+?)\s*(?=\n\s*Question:|\Z)", re.DOTALL)


class WrittenQuery(NamedTuple):
    """A text with its answer: numbers of regions, or, if they are None, boxes in 1/1000 of the frame's side."""

    text: str
    regions: tuple[int, ...] | None
    boxes: tuple[tuple[int, ...], ...] = ()


Request = tuple[int, WrittenQuery | None, str]
"""(number of a requested query, the query or None, reason why there is none)."""


def read_written_queries(path: str | Path) -> dict[str, list[WrittenQuery]]:
    """Return {image id: queries} of a JSON Lines file, or of a folder of text files with ``Question:`` and ``Answer:``
    lines. Raises UserError for a line that cannot be read."""
    path = Path(path)
    if path.is_dir():
        texts = {clean_id(file.stem): read_text(file, KEY) for file in sorted(path.glob("*.txt"))}
        return {image_id: list(parse_raw_queries(text)) for image_id, text in texts.items()}
    queries_by_image: dict[str, list[WrittenQuery]] = defaultdict(list)
    for number, text in enumerate(read_text(path, KEY).splitlines(), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            regions = None if row.get("regions") is None else tuple(int(region) for region in row["regions"])
            boxes = tuple(tuple(box) for box in row["boxes"]) if regions is None else ()
            queries_by_image[clean_id(row["image_id"])].append(WrittenQuery(str(row["query"]), regions, boxes))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{KEY}: line {number} of {path.name} has a missing or wrong value ({error})"
            raise UserError(f"{message}: give image_id, query, and regions or boxes") from None
    return dict(queries_by_image)


def parse_raw_queries(text: str) -> Iterator[WrittenQuery]:
    """Yield the queries of the paper's raw form, ``Question:`` and ``Answer:`` lines. An answer that is not JSON gets
    no box, so that its query is rejected later."""
    for question, answer in _RAW.findall(text.strip()):
        boxes: tuple[tuple[int, ...], ...] = ()
        with suppress(ValueError, KeyError, TypeError):
            value = json.loads(answer)
            boxes = tuple(tuple(entry["bbox_2d"]) for entry in (value if isinstance(value, list) else [value]))
        yield WrittenQuery(" ".join(question.split()), None, boxes)


def match_regions(query: WrittenQuery, rows: Sequence[Mapping]) -> tuple[tuple[int, ...], list[list[int]]]:
    """Return (numbers of the regions, boxes in 1/1000 of the side) of a query's answer. There are no regions if a box
    does not equal the box of a region that may be an answer. ``rows``: the rows of the image's regions."""
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
    """Write the user's texts about images without queries to ``unused``, each with a reason, and log their number.
    ``queries``, ``images``, ``excluded``: files of all sources. Raises AssertionError if texts were lost."""
    queries_by_image = read_written_queries(text_files[0])
    texts_by_image: dict[str, set[str]] = defaultdict(set)
    for line in chain.from_iterable(map(read_lines, queries)):
        texts_by_image[line["image_id"]].add(line["query"])
    image_ids, excluded_ids = (
        {image_id for path in paths for image_id in read_table(path)["image_id"]} for paths in (images, excluded)
    )
    rows = []
    for image_id, texts in sorted(queries_by_image.items()):
        if not texts:  # a file of the raw form without a question and an answer
            rows.append((image_id, 0, "", "no_text"))
        elif image_id not in texts_by_image:
            known_reason = "no_regions" if image_id in image_ids else "excluded"
            reason = known_reason if image_id in image_ids | excluded_ids else "unknown_image"
            rows += [(image_id, number, query.text, reason) for number, query in enumerate(texts)]
        elif missing := [query.text for query in texts if query.text not in texts_by_image[image_id]]:
            problem = f"{len(missing)} of the user's {len(texts)} texts are missing among the image's queries"
            raise AssertionError(f"medground, {image_id}: {problem}")
    if rows:
        log.warning(
            "medground.queries.table: %d of %d texts are about images that no source has, or that have no regions, "
            "such as %s (%s): see %s",
            len(rows), sum(map(len, queries_by_image.values())), rows[0][0], rows[0][3], Path(unused).name,
        )  # fmt: skip
    write_rows(unused, rows, UNUSED)


def parse_answer(line: Mapping) -> Iterator[Request]:
    """Yield (number, query or None, reason) for each query that a model was asked for, and for each query that it wrote
    in addition. ``line``: a line that :mod:`cxr.medground.queries.ask_model` wrote."""
    for number, reason in line["lost"]:
        yield number, None, reason
    numbers = range(line["wanted"]) if line["targets"] is None else [at for at, _ in line["targets"]]
    if line["answer"] is None:
        yield from ((number, None, "quarantined") for number in numbers)
        return
    if isinstance(line["answer"], str):
        queries = list(parse_raw_queries(line["answer"]))
    else:
        entries = ((entry["text"], entry["targets"]) for entry in line["answer"]["queries"])
        queries = [WrittenQuery(" ".join(text.split()), tuple(at - 1 for at in boxes)) for text, boxes in entries]
    if line["targets"] is None:
        # the model chose: its empty texts count as missing queries, after the queries that it worded
        num_texts, queries = len(queries), [query for query in queries if query.text]
        yield from ((number, query, "") for number, query in enumerate(queries))
        for number in range(len(queries), line["wanted"]):
            yield number, None, "declined" if number < num_texts else "not_given"
    else:
        for number, query in zip(numbers, queries, strict=True):
            yield (number, query, "") if query.text else (number, None, "declined")
