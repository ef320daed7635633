"""Ask a language model that sees pictures for the queries of shards, one question an image.

Writes JSON Lines, one line an image, sorted by ``image_id``: image_id, wanted (queries), targets ([[number, regions]]
that we drew, null where the model chose), lost ([[number, reason]] of targets that could not be drawn), described
(whether the description was sent), answer (the model's, null if none could be used; a text in the paper's form),
problem (null, or why), raw (the last answer if it could not be used), attempts, model.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.seeds import make_rng
from cxr.base.tables import write_lines
from cxr.llm.asking import Answer, Question
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.messages import fill_prompt
from cxr.llm.replies import object_schema
from cxr.medground.asking.questions import (
    MAX_CHARACTERS,
    AskingOptions,
    ModelSession,
    Prompts,
    box_number,
    draw_boxes,
    list_shards,
    measurement_table,
)
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import GRID_CORNERS, Facts, count_queries
from cxr.medground.logic.scene import build_scene
from cxr.medground.logic.text import FIELDS, find_text_fault
from cxr.medground.queries.forms import KINDS, Forms, FormSearch, Target, target_kind
from cxr.medground.queries.written_queries import parse_raw_queries

QUERIES_FACTOR = 4
"""Most queries of a model that chooses targets, as a multiple of the requested number."""
RETRIED_FAULTS = ("markup", "speaks_to_model", "coordinates")
"""Faults of a text for which the model is asked again; the verification counts the others."""
TRIES = 12
"""Draws until a target is new."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(AskingOptions):
    """The settings ``medground.queries`` that the questions depend on.

    selection: ours or model; form: json or question_answer.
    """

    per_image: int
    families: Sequence[str]
    selection: str
    form: str


@dataclass(frozen=True)
class ImageRequest:
    """The request about an image. targets: [(number, regions)], None if the model chooses them."""

    image: Mapping
    num_queries: int
    targets: Sequence[tuple[int, Sequence[int]]] | None
    lost: Sequence[tuple[int, str]]
    question: Question | Answer

    @property
    def fields(self) -> dict:
        """The fields of the line before the answer's."""
        return {
            "image_id": self.image["image_id"],
            "wanted": self.num_queries,
            "targets": self.targets if self.targets is None else [[at, list(regions)] for at, regions in self.targets],
            "lost": [list(pair) for pair in self.lost],
            "described": bool(self.image["description"]),
        }


def build_request(
    source: str,
    image: Mapping,
    rows: list[dict],
    facts: Facts,
    picture: np.ndarray,
    options: QuestionOptions,
    prompts: Prompts,
) -> ImageRequest:
    """Return the request about an image: ``image`` its row, ``rows`` its regions, ``picture`` uint8 (S, S, 3)."""
    candidates = [row for row in rows if row["candidate"]]
    num_queries = count_queries(len(candidates), options.per_image)
    targets, lost = None, []
    if options.selection == "ours":
        key = (options.seed, source, image["image_id"])
        decider = Decider(build_scene(image, rows, facts, picture.shape[0]))
        forms = FormSearch(decider, tuple(options.families), make_rng(*key, "forms")).run()
        targets, lost = sample_targets(decider, forms, num_queries, *key, "targets")
        if not targets:
            return ImageRequest(image, num_queries, targets, lost, Answer(value={"queries": []}))
    if addresses_the_model(f"{image['description']}\n{facts.modality}", FIELDS):
        return ImageRequest(image, num_queries, targets, lost, Answer(problem=INJECTION))
    slot_values = {
        "modality": neutralize(facts.modality or image["domain"]),
        "table": measurement_table(candidates, facts.classes, image["domain"]),
        "description": prompts.description(image["description"]),
        "targets": "".join(f"\n{_describe_target(regions)}" for _, regions in targets or ()),
        "count": str(num_queries),
        "boxes": "".join(
            f"\n{box_number(row['region'])}: {[row[side] for side in GRID_CORNERS]}" for row in candidates
        ),
    }
    prompt = prompts.prompt("generate", image["domain"], "user" if targets else "user_free")
    messages = fill_prompt(
        prompt, [PromptImage(picture), draw_boxes(picture, candidates, is_numbered=True)], **slot_values
    )
    seed = options.seed_of(source, image["image_id"])
    if options.form == "question_answer":
        question = Question(messages, None, lambda text: None if list(parse_raw_queries(text)) else "no question", seed)
    else:
        schema = answer_schema([box_number(row["region"]) for row in candidates], targets, num_queries)
        refusals = prompts.words("refusals")
        question = Question(messages, schema, lambda answer: find_contradiction(answer, refusals), seed)
    return ImageRequest(image, num_queries, targets, lost, question)


def _describe_target(regions: Sequence[int]) -> str:
    return f"{'boxes' if len(regions) > 1 else 'box'} {', '.join(str(box_number(region)) for region in regions)}"


def answer_schema(numbers: list[int], targets: Sequence[tuple[int, Sequence[int]]] | None, num_queries: int) -> dict:
    """Return the schema of an answer: numbers of candidates, or the sampled targets in order; never coordinates."""
    text = {"type": "string", "maxLength": MAX_CHARACTERS}  # an empty one declines
    if targets is None:
        targets_schema = {"type": "array", "items": {"enum": numbers}, "minItems": 1, "maxItems": len(numbers)}
        item = object_schema(text=text, targets=targets_schema)
        return object_schema(
            queries={"type": "array", "items": item, "minItems": 1, "maxItems": QUERIES_FACTOR * num_queries}
        )
    items = [
        object_schema(text=text, targets={"const": [box_number(region) for region in target]}) for _, target in targets
    ]
    fixed = {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
    return object_schema(queries=fixed)


def find_contradiction(answer: dict, refusals: Sequence[str] = ()) -> str | None:
    """Return why an answer that fits the schema is unusable, without quoting its text; None if it is usable."""
    seen_keys: set[tuple] = set()
    for number, query in enumerate(answer["queries"]):
        text = query["text"].strip()
        if len(set(query["targets"])) < len(query["targets"]):
            return f"queries.{number}: a target twice"
        fault = find_text_fault(text) if text else None
        if fault and fault[0] in RETRIED_FAULTS:
            return f"queries.{number}: {fault[0]}"
        if text.lower().replace("’", "'").startswith(tuple(refusals)):
            return f"queries.{number}: a refusal"
        key = (text.lower(), *sorted(query["targets"]))
        if text and key in seen_keys:
            return f"queries.{number}: a query twice"
        seen_keys.add(key)
    return None


def run(
    *, sources: Sequence[str], images: Sequence[str], regions: Sequence[str], answers: Sequence[str],
    options: QuestionOptions, execution: dict, code: str = "", compute: dict | None = None,
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Ask about every image with regions; the model is loaded once.

    sources, regions, answers: one path per shard, whose sources are ``options.of``; images: one table per source, in
    their order; prompts: a user's file of wordings, or nothing. Raises UserError if the model cannot be reached, Broken
    if none of its answers can be used.
    """
    session = ModelSession(options, execution, answers, code, compute, prompts)

    def build(source: str, image: Mapping, rows: list[dict], facts: Facts, picture: np.ndarray) -> dict:
        return {image["image_id"]: build_request(source, image, rows, facts, picture, options, session.prompts)}

    for (source, files), output in zip(list_shards(options, sources, images, regions), answers, strict=True):
        lines = [request.fields | answer for request, answer in session.ask(source, files, build)]
        write_lines(output, lines, checked=True)


def sample_targets(
    decider: Decider, forms: Forms, num_queries: int, *key: object
) -> tuple[list[tuple[int, Target]], list[tuple[int, str]]]:
    """Return [(number, target)] and [(number, reason)] of an image's requested queries, numbered from 0.

    ``key``: seed of the draws. No target is drawn twice.
    """
    by_kind: dict[str, list[Target]] = {}
    for target in sorted(forms.of):
        if kind := target_kind(target, decider):
            by_kind.setdefault(kind, []).append(target)
    targets, lost, used = [], [], set()
    for number in range(num_queries):
        draw = make_rng(*key, number)
        target = _sample_new_target(by_kind, used, draw)
        if target is None:
            lost.append((number, "budget" if forms.spent else "undecidable"))
        else:
            used.add(target)
            targets.append((number, target))
    return targets, lost


def _sample_new_target(by_kind: Mapping[str, list[Target]], used: set[Target], draw: random.Random) -> Target | None:
    for _ in range(TRIES if by_kind else 0):
        names = sorted(by_kind)
        (name,) = draw.choices(names, [KINDS[kind] for kind in names])
        target = draw.choice(by_kind[name])
        if target not in used:
            return target
    return None
