"""Make the queries of one shard by rules, from a language model's answers (vllm), or from a user's table."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.seeds import make_rng
from cxr.base.tables import read_table, write_lines, write_table
from cxr.geometry.affine import boxes_to_original
from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.decide import Decider, Query
from cxr.medground.logic.descriptions import description_faults, parse_description
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.outlines import Outlines
from cxr.medground.logic.scene import build_scene, region_sides
from cxr.medground.queries.forms import FormSearch, target_kind
from cxr.medground.queries.options import QueriesOptions
from cxr.medground.queries.sampling import QuerySampler, SampledQuery
from cxr.medground.queries.written_queries import (
    WrittenQuery,
    get_answer,
    match_regions,
    parse_answer,
    read_answers,
    read_written_queries,
)

UNASKED: Columns = {
    "image_id": Column(pl.String, "Image."),
    "split": Column(pl.String, "Its split."),
    "number": Column(pl.Int64, "Which of the wanted queries, from 0."),
    "reason": Column(
        pl.String,
        "undecidable: no further query has one answer; fragile: of every further query the answer depends on where "
        "exactly the outlines lie; budget: the search was ended; not_given: the table or the model "
        "has fewer, or no description is of the form that statements need; declined: the model left the text empty; "
        "quarantined: no answer of the model could be used; side_disagrees, number_disagrees: a statement names other "
        "sides, or another number, than the regions have.",
    ),
}


def query_id(image_id: str, query: str, regions: list[int]) -> str:
    """Return the id of a query, a digest of its image, text and answer."""
    key = "\x1f".join([image_id, query, *map(str, regions)])
    return "q" + hashlib.blake2b(key.encode()).hexdigest()[:16]


def sample_queries(
    image: Mapping, rows: list[dict], shifted_rows: list[dict], facts: Facts, side: int, options: QueriesOptions
) -> tuple[list[dict], list[dict]]:
    """Return the lines of one image's queries, and the rows of :data:`UNASKED`.

    ``rows``: of its regions; ``shifted_rows``: of its regions with shifted outlines.
    """
    numbers = LogicOptions()
    decider = Decider(build_scene(image, rows, facts, side), numbers)
    outlines = Outlines(image, shifted_rows, facts, side, numbers)
    draw = make_rng(options.seed, options.source, image["image_id"], "forms")
    forms = FormSearch(decider, options.max_atoms, options.budget, tuple(options.families), draw).run()
    candidates = int(decider.scene.candidate.sum())
    num_queries = options.count_queries(candidates)
    drawer, lines, unasked, seen_texts = (
        QuerySampler(decider, outlines, forms, options, image["image_id"]),
        [],
        [],
        set(),
    )
    for number in range(num_queries):
        query = drawer.draw(number)
        if query is None or query.text in seen_texts:
            reason = "fragile" if query is None and drawer.withheld else "budget" if forms.spent else "undecidable"
            unasked.append({"image_id": image["image_id"], "split": image["split"], "number": number, "reason": reason})
            continue
        seen_texts.add(query.text)
        lines.append(_sampled_line(image, rows, facts, options, query, decider))
    return lines, unasked


def supplied_queries(
    image: Mapping, rows: list[dict], facts: Facts, side: int, options: QueriesOptions, queries: Sequence[WrittenQuery]
) -> tuple[list[dict], list[dict]]:
    """Return the lines of an image's supplied queries, and the rows of missing ones."""
    decider = Decider(build_scene(image, rows, facts, side), LogicOptions())
    candidates = int(decider.scene.candidate.sum())
    num_queries = options.count_queries(candidates)
    lines = [_written_line(image, rows, facts, options, decider, query) for query in queries]
    missing = [
        {"image_id": image["image_id"], "split": image["split"], "number": number, "reason": "not_given"}
        for number in range(len(queries), num_queries)
    ]
    return lines, missing


def model_queries(
    image: Mapping, rows: list[dict], facts: Facts, side: int, options: QueriesOptions, line: Mapping
) -> tuple[list[dict], list[dict]]:
    """Return the lines of a model's queries about an image, and the rows of missing ones.

    ``line``: its answer (:mod:`cxr.medground.queries.ask_model`).
    """
    decider = Decider(build_scene(image, rows, facts, side), LogicOptions())
    lines, missing = [], []
    for number, query, reason in parse_answer(line):
        if query is None:
            row = {"image_id": image["image_id"], "split": image["split"], "number": number, "reason": reason}
            missing.append(row)
        else:
            query_line = _written_line(image, rows, facts, options, decider, query)
            lines.append(query_line | {"description_used": line["described"]})
    return lines, sorted(missing, key=lambda row: row["number"])


def statement_queries(
    image: Mapping, rows: list[dict], facts: Facts, side: int, options: QueriesOptions
) -> tuple[list[dict], list[dict]]:
    """Return the line of an image's description, whose answer is all its regions.

    If the description has no known form, or its sides or number are wrong, return a row with the reason instead.
    """
    statement = parse_description(image["description"]) if image["radiological"] else None
    reason = ""
    if statement is None or not statement.names_patient_sides:
        reason = "not_given"
    elif wrong := description_faults(statement, region_sides(image, rows, side)):
        reason = f"{wrong[0]}_disagrees"
    elif not all(row["candidate"] for row in rows):
        reason = "undecidable"  # a distractor is no answer
    if reason:
        return [], [{"image_id": image["image_id"], "split": image["split"], "number": 0, "reason": reason}]
    decider = Decider(build_scene(image, rows, facts, side), LogicOptions())
    query_line = _written_line(
        image, rows, facts, options, decider, WrittenQuery(image["description"], tuple(range(len(rows))))
    )
    return [query_line | {"engine": "statements", "description_used": True}], []


def _written_line(image, rows, facts, options, decider, query: WrittenQuery) -> dict:
    regions, boxes = match_regions(query, rows)
    regions_exist = bool(regions) and set(regions) <= set(range(len(rows)))
    kind = target_kind(tuple(sorted(set(regions))), decider) or "all" if regions_exist else ""
    line = _line_fields(image, rows, facts, options, list(regions) if regions_exist else [], decider)
    line |= {"query_id": query_id(image["image_id"], query.text, [*regions, *chain(*boxes)]), "query": query.text}
    return line | {"kind": kind, "regions": list(regions), "boxes": boxes}


def _sampled_line(image, rows, facts, options, query: SampledQuery, decider) -> dict:
    regions = list(query.target)
    class_atoms = [atom for atom in query.query.atoms if atom.startswith("class:")]
    selected_by_class = bool(class_atoms) and decider.answer(Query(tuple(class_atoms[:1]))).selected == query.target
    query_fields = {
        "query_id": query_id(image["image_id"], query.text, regions),
        "query": query.text,
        "kind": query.kind,
    }
    query_fields |= {
        "by_class": selected_by_class,
        "families": sorted(query.query.families()),
        "logic": asdict(query.query),
    }
    return _line_fields(image, rows, facts, options, regions, decider) | query_fields


def _line_fields(image, rows, facts, options, regions, decider) -> dict:
    """Return the fields of a line in their order; those that the query decides are empty."""
    boxes = [[rows[region][name] for name in ("gx1", "gy1", "gx2", "gy2")] for region in regions]
    return {
        "query_id": "",
        "source": options.source,
        "image_id": image["image_id"],
        "subject_id": image["subject_id"],
        "split": image["split"],
        "domain": image["domain"],
        "modality": facts.modality,
        "query": "",
        "kind": "",
        "regions": regions,
        "boxes": boxes,
        "boxes_px": [
            _to_original([rows[region][name] for name in CORNERS], image["to_original"]) for region in regions
        ],
        "candidates": int(decider.scene.candidate.sum()),
        "trivial": int(decider.scene.candidate.sum()) == 1,
        "by_class": False,
        "families": [],
        "logic": None,
        "engine": options.engine,
        "description_used": False,
        "licence": image["licence"],
    }


def _to_original(box: list[int], affine: list[float]) -> list[float]:
    """Return a frame box in original pixels; ``affine``: six numbers, row by row."""
    (corners,) = boxes_to_original(np.array(box, np.float64), np.reshape(affine, (2, 3))).tolist()
    return [round(corner, 2) for corner in corners]


def _read_rows_by_image(path: str) -> Mapping[str, list[dict]]:
    rows_by_image = defaultdict(list)
    for row in read_table(path).iter_rows(named=True):
        rows_by_image[row["image_id"]].append(row)
    return rows_by_image


def run_shard(
    *, sources: str, images: str, regions: str, shifted: str, output: str, unasked: str, options: QueriesOptions,
    text_files: list[str] | None = None, model_answers: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the queries of one shard (JSON Lines) and the requested queries that could not be made.

    ``shifted``: regions with shifted outlines; ``text_files``: file or folder of the engine table, whose queries about
    other sources' images are ignored; ``model_answers``: of the engine vllm. Raises UserError if an answer is missing.
    """
    queries_by_image = read_written_queries(text_files[0]) if text_files else {}
    answers = read_answers(model_answers[0]) if model_answers else {}
    by_image, shifted_by_image = _read_rows_by_image(regions), _read_rows_by_image(shifted)
    lines, missing = [], []
    with Shard(sources) as shard:
        facts, side = Facts.from_shard(shard), shard.shape("picture")[0]
    row_by_image = {row["image_id"]: row for row in read_table(images).iter_rows(named=True)}
    for image_id in progress(sorted(by_image), len(by_image), "queries"):
        image, rows = row_by_image[image_id], by_image[image_id]
        if options.statements:
            image_lines, image_missing = statement_queries(image, rows, facts, side, options)
        elif text_files:
            image_lines, image_missing = supplied_queries(
                image, rows, facts, side, options, queries_by_image.get(image_id, ())
            )
        elif model_answers:
            image_lines, image_missing = model_queries(image, rows, facts, side, options, get_answer(answers, image_id))
        else:
            image_lines, image_missing = sample_queries(image, rows, shifted_by_image[image_id], facts, side, options)
        lines, missing = lines + image_lines, missing + image_missing
    write_lines(output, lines)
    write_table(unasked, pl.DataFrame(missing, schema=schema(UNASKED)), UNASKED)
