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
from cxr.base.seeds import make_rng
from cxr.base.tables import read_table, write_lines
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.messages import fill_prompt
from cxr.llm.options import Execution
from cxr.llm.replies import object_schema
from cxr.medground.asking.options import IMAGES_PER_BATCH, AskingOptions, build_generate
from cxr.medground.asking.prompts import Prompts
from cxr.medground.asking.views import box_number, draw_numbered, measurement_table
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.scene import build_scene
from cxr.medground.logic.text import FIELDS, find_text_fault
from cxr.medground.queries.forms import Forms, FormSearch, Target, target_kind
from cxr.medground.queries.options import SearchOptions
from cxr.medground.queries.written_queries import SIDES, parse_raw_queries

log = logging.getLogger("cxr")
EXECUTION = "medground.queries.llm.execution"
MAX_CHARACTERS = 400
"""Longest query in the schema, so that a model that does not end is stopped."""
QUERIES_FACTOR = 4
"""Most queries of a model that chooses targets, as a multiple of the requested number."""
RETRIED_FAULTS = ("markup", "speaks_to_model", "coordinates")
"""Faults of a text for which the model is asked again; the verification counts the others."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(AskingOptions, SearchOptions):
    """The settings ``medground.queries`` that the questions depend on.

    selection: ours or model; form: json or question_answer.
    """

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

    def line(self, answer: Answer, model: str) -> dict:
        """Return the line of the file."""
        return {
            "image_id": self.image["image_id"],
            "wanted": self.num_queries,
            "targets": self.targets if self.targets is None else [[at, list(regions)] for at, regions in self.targets],
            "lost": [list(pair) for pair in self.lost],
            "described": bool(self.image["description"]),
            "answer": answer.value,
            "problem": answer.problem,
            "raw": answer.raw,
            "attempts": answer.attempts,
            "model": model,
        }


def build_request(
    image: Mapping, rows: list[dict], facts: Facts, picture, options: QuestionOptions, prompts: Prompts
) -> ImageRequest:
    """Return the request about an image: ``image`` its row, ``rows`` its regions, ``picture`` uint8 (S, S, 3)."""
    candidates = [row for row in rows if row["candidate"]]
    num_queries = options.count_queries(len(candidates))
    targets, lost = None, []
    if options.selection == "ours":
        key = (options.seed, options.source, image["image_id"])
        decider = Decider(build_scene(image, rows, facts, picture.shape[0]), LogicOptions())
        forms = FormSearch(
            decider, options.max_atoms, options.budget, tuple(options.families), make_rng(*key, "forms")
        ).run()
        targets, lost = sample_targets(decider, forms, options.kinds, num_queries, *key, "targets")
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
        "boxes": "".join(f"\n{box_number(row['region'])}: {[row[side] for side in SIDES]}" for row in candidates),
    }
    prompt = prompts.prompt("generate", image["domain"], "user" if targets else "user_free")
    messages = fill_prompt(prompt, [PromptImage(picture), draw_numbered(picture, candidates)], **slot_values)
    seed = options.seed_of(image["image_id"])
    if options.form == "question_answer":
        question = Question(messages, None, lambda text: None if list(parse_raw_queries(text)) else "no question", seed)
    else:
        schema = answer_schema([box_number(row["region"]) for row in candidates], targets, num_queries)
        question = Question(
            messages, schema, lambda answer: find_contradiction(answer, prompts.words("refusals")), seed
        )
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
    tables, wordings = dict(zip(dict.fromkeys(options.of), images, strict=True)), Prompts.read(*prompts)
    generate = build_generate(options, Execution.from_settings(execution, EXECUTION), answers, code)
    tolerance = Tolerance.from_settings(compute)
    for shard_options, source, boxes, output in zip(options.each, sources, regions, answers, strict=True):
        row_by_image = {row["image_id"]: row for row in read_table(tables[shard_options.source]).iter_rows(named=True)}
        write_lines(
            output,
            _shard_lines(source, boxes, row_by_image, shard_options, wordings, generate, tolerance),
            checked=True,
        )


def _shard_lines(
    source: str, regions: str, row_by_image: Mapping[str, dict], options: QuestionOptions, wordings: Prompts,
    generate: Generate, tolerance: Tolerance = NO_LIMIT,
) -> list[dict]:  # fmt: skip
    """Return the lines of one shard. ``row_by_image``: rows of the source's images by their ids."""
    by_image: dict[str, list[dict]] = defaultdict(list)
    for row in read_table(regions).iter_rows(named=True):
        by_image[row["image_id"]].append(row)
    lines, names = [], sorted(by_image)
    with Shard(source) as shard:
        facts = Facts.from_shard(shard)
        for first in range(0, len(names), IMAGES_PER_BATCH):
            part = {
                name: build_request(
                    row_by_image[name], by_image[name], facts, shard.get("picture", name), options, wordings
                )
                for name in names[first : first + IMAGES_PER_BATCH]
            }
            answers = ask_each(
                {name: request.question for name, request in part.items()}, generate, options.limits, tolerance
            )
            lines += [part[name].line(answer, options.name) for name, answer in answers.items()]
            log.info("queries: %d of %d images of %s are asked about", len(lines), len(names), source)
    return lines


TRIES = 12
"""Draws until a target is new."""


def sample_targets(
    decider: Decider, forms: Forms, kinds: Mapping[str, float], num_queries: int, *key: object
) -> tuple[list[tuple[int, Target]], list[tuple[int, str]]]:
    """Return [(number, target)] and [(number, reason)] of an image's requested queries, numbered from 0.

    kinds: weight of each kind; ``key``: seed of the draws. No target is drawn twice.
    """
    by_kind: dict[str, list[Target]] = {}
    for target in sorted(forms.of):
        if kind := target_kind(target, decider):
            by_kind.setdefault(kind, []).append(target)
    targets, lost, used = [], [], set()
    for number in range(num_queries):
        draw = make_rng(*key, number)
        target = _sample_new_target(by_kind, kinds, used, draw)
        if target is None:
            lost.append((number, "budget" if forms.spent else "undecidable"))
        else:
            used.add(target)
            targets.append((number, target))
    return targets, lost


def _sample_new_target(
    by_kind: Mapping[str, list[Target]], kinds: Mapping[str, float], used: set[Target], draw
) -> Target | None:
    for _ in range(TRIES if by_kind else 0):
        names = sorted(by_kind)
        (name,) = draw.choices(names, [kinds[kind] for kind in names])
        target = draw.choice(by_kind[name])
        if target not in used:
            return target
    return None
