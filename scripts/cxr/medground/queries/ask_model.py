"""Ask a language model that sees pictures for the queries of shards, one question an image.

Writes JSON Lines, one line an image, sorted by ``image_id``: image_id, wanted (queries), targets ([[number, regions]]
that we drew, null where the model chose), lost ([[number, reason]] of targets that could not be drawn), described
(whether the description was sent), answer (the model's, null if none could be used; a text in the paper's form),
problem (null, or why), raw (the last answer if it could not be used), attempts, model.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cxr.base.faults import NO_LIMIT, Tolerance
from cxr.base.hdf5 import Shard
from cxr.base.seeds import rng
from cxr.base.tables import read_table, write_lines
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.messages import fill_prompt
from cxr.llm.options import Execution
from cxr.llm.replies import object_schema
from cxr.medground.asking.options import PART, AskingOptions, asking
from cxr.medground.asking.prompts import Prompts
from cxr.medground.asking.views import number_of, numbered, table
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.table import scene_of
from cxr.medground.logic.text import FIELDS, text_fault
from cxr.medground.queries.forms import Search
from cxr.medground.queries.given import SIDES, raw
from cxr.medground.queries.options import SearchOptions
from cxr.medground.queries.targets import drawn_targets

log = logging.getLogger("cxr")
EXECUTION = "medground.queries.llm.execution"
LONGEST = 400
"""Characters of a query, so that the schema stops a model that does not end."""
MOST = 4
"""How many times the wanted queries a model that chooses targets may give at most."""
AGAIN = ("markup", "speaks_to_model", "coordinates")
"""Faults of a text for which the model is asked again; others are left to the verification, which counts them."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(AskingOptions, SearchOptions):
    """The settings ``medground.queries`` and ``medground.logic`` that the questions depend on.

    selection: ours or model; form: json or question_answer.
    """

    selection: str
    form: str


@dataclass(frozen=True)
class Asked:
    """What is asked about an image. targets: [(number, regions)], None where the model chooses."""

    image: Mapping
    wanted: int
    targets: Sequence[tuple[int, Sequence[int]]] | None
    lost: Sequence[tuple[int, str]]
    question: Question | Answer

    def line(self, answer: Answer, model: str) -> dict:
        """Return the line of the file."""
        return {
            "image_id": self.image["image_id"],
            "wanted": self.wanted,
            "targets": self.targets if self.targets is None else [[at, list(regions)] for at, regions in self.targets],
            "lost": [list(pair) for pair in self.lost],
            "described": bool(self.image["description"]),
            "answer": answer.value,
            "problem": answer.problem,
            "raw": answer.raw,
            "attempts": answer.attempts,
            "model": model,
        }


def asked_of(
    image: Mapping, rows: list[dict], facts: Facts, picture, options: QuestionOptions, prompts: Prompts
) -> Asked:
    """Return what is asked about one image: ``image`` its row, ``rows`` of its regions, ``picture`` uint8 (S, S, 3)."""
    candidates = [row for row in rows if row["candidate"]]
    num_queries = options.wanted(len(candidates))
    targets, lost = None, []
    if options.selection == "ours":
        key = (options.seed, options.source, image["image_id"])
        decider = Decider(scene_of(image, rows, facts, picture.shape[0]), LogicOptions(**options.logic))
        forms = Search(decider, options.max_atoms, options.budget, tuple(options.families), rng(*key, "forms")).run()
        targets, lost = drawn_targets(decider, forms, options.kinds, num_queries, *key, "targets")
        if not targets:
            return Asked(image, num_queries, targets, lost, Answer(value={"queries": []}))
    if addresses_the_model(f"{image['description']}\n{facts.modality}", FIELDS):
        return Asked(image, num_queries, targets, lost, Answer(problem=INJECTION))
    slot_values = {
        "modality": neutralize(facts.modality or image["domain"]),
        "table": table(candidates, facts.classes, image["domain"]),
        "description": prompts.description(image["description"]),
        "targets": "".join(f"\n{_told(regions)}" for _, regions in targets or ()),
        "count": str(num_queries),
        "boxes": "".join(f"\n{number_of(row['region'])}: {[row[side] for side in SIDES]}" for row in candidates),
    }
    prompt = prompts.prompt("generate", image["domain"], "user" if targets else "user_free")
    messages = fill_prompt(prompt, [PromptImage(picture), numbered(picture, candidates)], **slot_values)
    seed = options.seed_of(image["image_id"])
    if options.form == "question_answer":
        question = Question(messages, None, lambda text: None if list(raw(text)) else "no question", seed)
    else:
        schema = schema_of([number_of(row["region"]) for row in candidates], targets, num_queries)
        question = Question(messages, schema, lambda answer: contradiction(answer, prompts.words("refusals")), seed)
    return Asked(image, num_queries, targets, lost, question)


def _told(regions: Sequence[int]) -> str:
    return f"{'boxes' if len(regions) > 1 else 'box'} {', '.join(str(number_of(region)) for region in regions)}"


def schema_of(numbers: list[int], targets: Sequence[tuple[int, Sequence[int]]] | None, num_queries: int) -> dict:
    """Return the schema of an answer: its numbers are those of the candidates, or those that we drew, in their order.

    No coordinates can be invented.
    """
    text = {"type": "string", "maxLength": LONGEST}  # an empty one declines
    if targets is None:
        targets_schema = {"type": "array", "items": {"enum": numbers}, "minItems": 1, "maxItems": len(numbers)}
        item = object_schema(text=text, targets=targets_schema)
        return object_schema(queries={"type": "array", "items": item, "minItems": 1, "maxItems": MOST * num_queries})
    items = [
        object_schema(text=text, targets={"const": [number_of(region) for region in target]}) for _, target in targets
    ]
    fixed = {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
    return object_schema(queries=fixed)


def contradiction(answer: dict, refusals: Sequence[str] = ()) -> str | None:
    """Return what makes an answer unusable although it fits the schema; None if nothing does. It quotes no text."""
    seen_keys: set[tuple] = set()
    for number, query in enumerate(answer["queries"]):
        text = query["text"].strip()
        if len(set(query["targets"])) < len(query["targets"]):
            return f"queries.{number}: a target twice"
        fault = text_fault(text) if text else None
        if fault and fault[0] in AGAIN:
            return f"queries.{number}: {fault[0]}"
        if text.lower().replace("’", "'").startswith(tuple(refusals)):
            return f"queries.{number}: a refusal"
        key = (text.lower(), *sorted(query["targets"]))
        if text and key in seen_keys:
            return f"queries.{number}: a query twice"
        seen_keys.add(key)
    return None


def run(
    *, sources: Sequence[str], images: Sequence[str], regions: Sequence[str], told: Sequence[str],
    options: QuestionOptions, execution: dict, code: str = "", compute: dict | None = None,
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Ask about every image with regions of the shards ``options.of`` names the sources of; the model is loaded once.

    sources, regions, told: paths, one a shard; images: a table of each source, in their order; prompts: a user's file
    of wordings, none or one. Raises UserError if the model cannot be reached, Broken if none of its answers can be
    used.
    """
    tables, wordings = dict(zip(dict.fromkeys(options.of), images, strict=True)), Prompts.read(*prompts)
    generate = asking(options, Execution.from_settings(execution, EXECUTION), told, code)
    tolerance = Tolerance.of(compute)
    for shard_options, source, boxes, output in zip(options.each, sources, regions, told, strict=True):
        row_by_image = {row["image_id"]: row for row in read_table(tables[shard_options.source]).iter_rows(named=True)}
        write_lines(
            output, _lines(source, boxes, row_by_image, shard_options, wordings, generate, tolerance), checked=True
        )


def _lines(
    source: str, regions: str, row_by_image: Mapping[str, dict], options: QuestionOptions, wordings: Prompts,
    generate: Generate, tolerance: Tolerance = NO_LIMIT,
) -> list[dict]:  # fmt: skip
    """Return the lines of one shard. ``row_by_image``: rows of the source's images by their ids."""
    by_image: dict[str, list[dict]] = defaultdict(list)
    for row in read_table(regions).iter_rows(named=True):
        by_image[row["image_id"]].append(row)
    lines, names = [], sorted(by_image)
    with Shard(source) as shard:
        facts = Facts.of(shard)
        for first in range(0, len(names), PART):
            part = {
                name: asked_of(row_by_image[name], by_image[name], facts, shard.get("picture", name), options, wordings)
                for name in names[first : first + PART]
            }
            answers = ask_each(
                {name: request.question for name, request in part.items()}, generate, options.limits, tolerance
            )
            lines += [part[name].line(answer, options.name) for name, answer in answers.items()]
            log.info("queries: %d of %d images of %s are asked about", len(lines), len(names), source)
    return lines
