"""Ask a language model that sees images to judge queries, in one of two ways or in both.

confirm: it sees the answer outlined, describes it, and says whether the query is grounded and unambiguous. select: it
sees the numbered candidates, not the answer, and gives the numbers that the query means.

Writes JSON Lines, one line for each query of good form, by image and query: query_id, shown (regions on the picture),
answer (the model's, null if none could be used), problem (null, or why), raw (the last answer if it could not be used),
attempts, model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cxr.base.tables import read_lines, write_lines
from cxr.llm.asking import Answer, Question
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.messages import fill_prompt
from cxr.llm.replies import object_schema, text_schema
from cxr.medground.asking.questions import (
    MAX_CHARACTERS,
    AskingOptions,
    ModelSession,
    Prompts,
    box_number,
    draw_boxes,
    list_shards,
)
from cxr.medground.logic.facts import GRID_CORNERS, Facts, group_by_image
from cxr.medground.logic.text import FIELDS
from cxr.medground.verification.text_rules import find_form_fault

SELECT_FROM = 20
"""Most candidates on an image for select: the answer and those nearest to it."""
_NEGATED = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|hardly|isn't|doesn't|don't|aren't)\b(?:\s+\w+){0,3}\s*$"
)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(AskingOptions):
    """ways: in which a job asks, confirm and select."""

    ways: Sequence[str] = ()


@dataclass(frozen=True)
class JudgeRequest:
    """The request about a query. regions: on the image."""

    query_id: str
    regions: list[int]
    question: Question | Answer


class Views:
    """The pictures of one image, each made once: questions about the same picture share their prefix."""

    def __init__(self, picture: np.ndarray, rows: Sequence[Mapping]):
        self.picture, self.rows = picture, {row["region"]: row for row in rows}
        self._made: dict[tuple, PromptImage] = {}

    def draw(self, way: str, regions: Sequence[int]) -> PromptImage:
        """Return the picture of a way of asking with some regions."""
        key = (way, *regions)
        if key not in self._made:
            rows = [self.rows[region] for region in regions]
            self._made[key] = draw_boxes(self.picture, rows, is_numbered=way == "select")
        return self._made[key]


def candidates_to_show(answer: Sequence[int], rows: Mapping[int, Mapping], most: int = SELECT_FROM) -> list[int]:
    """Return the candidates that select shows: all, or the answer and those nearest to it, ``most`` in total.

    For an answer of ``most`` regions or more, all candidates are shown; otherwise the answer would be obvious.
    """
    candidates = [region for region, row in rows.items() if row["candidate"]]
    if len(candidates) <= most or len(answer) >= most:
        return sorted(candidates)
    centre = np.array([[rows[candidate]["cx"], rows[candidate]["cy"]] for candidate in answer], np.float64)

    def distance(region: int) -> float:
        return float(np.hypot(*(centre - [rows[region]["cx"], rows[region]["cy"]]).T).min())

    other_candidates = sorted(
        (candidate for candidate in candidates if candidate not in answer),
        key=lambda candidate: (distance(candidate), candidate),
    )
    return sorted([*answer, *other_candidates[: most - len(answer)]])


def confirm_schema() -> dict:
    """Return the schema of an answer to confirm."""
    yes = {"type": "boolean"}
    reason = {"type": "string", "maxLength": MAX_CHARACTERS}
    return object_schema(observed=text_schema(MAX_CHARACTERS), grounded=yes, unambiguous=yes, reason=reason)


def select_schema(regions: Sequence[int]) -> dict:
    """Return the schema of an answer to select: numbers of boxes on the image."""
    numbers = [box_number(region) for region in regions]
    return object_schema(targets={"type": "array", "items": {"enum": numbers}, "maxItems": len(numbers)})


def build_question(
    way: str,
    line: Mapping,
    views: Views,
    image: Mapping,
    facts: Facts,
    options: JudgeOptions,
    prompts: Prompts,
    source: str,
) -> JudgeRequest:
    """Return the request about a query."""
    regions = list(line["regions"])
    if way == "select":
        regions = candidates_to_show(line["regions"], views.rows)
    if addresses_the_model(f"{line['query']}\n{facts.modality}", FIELDS):
        return JudgeRequest(line["query_id"], regions, Answer(problem=INJECTION))
    slot_values = {"modality": neutralize(facts.modality or image["domain"]), "query": neutralize(line["query"])}
    messages = fill_prompt(prompts.prompt(way, image["domain"]), [views.draw(way, regions)], **slot_values)
    seed, words = options.seed_of(source, line["query_id"], way), (prompts.words("affirms"), prompts.words("denies"))
    if way == "select":

        def find_repeated_target(answer: dict) -> str | None:
            return "targets: a number twice" if len(set(answer["targets"])) < len(answer["targets"]) else None

        question = Question(messages, select_schema(regions), find_repeated_target, seed)
    else:
        question = Question(messages, confirm_schema(), lambda answer: find_contradiction(answer, *words), seed)
    return JudgeRequest(line["query_id"], regions, question)


def well_formed_queries(lines: Iterable[Mapping], rows: Mapping[int, Mapping]) -> list[Mapping]:
    """Return the queries of one image that pass stage I; the others are not asked about."""
    boxes = {region: [row[side] for side in GRID_CORNERS] for region, row in rows.items()}
    candidates = {region for region, row in rows.items() if row["candidate"]}
    return [line for line in lines if find_form_fault(line, boxes, candidates) is None]


def run(
    *, sources: Sequence[str], images: Sequence[str], regions: Sequence[str], queries: Sequence[str],
    answers: Sequence[str], options: JudgeOptions, execution: dict, code: str = "", compute: dict | None = None,
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Ask about every well-formed query of the shards, whose sources are ``options.of``; the model is loaded once.

    sources, regions, queries: paths, one a shard; images: a table of each source, in their order; answers: a file for
    each of ``options.ways`` and shard, in this order; prompts: a user's file of wordings, none or one. Raises
    UserError if the model cannot be reached, Broken if none of its answers can be used.
    """
    session = ModelSession(options, execution, answers, code, compute, prompts)
    shards, outputs = list_shards(options, sources, images, regions), iter(answers)
    for way in options.ways:
        for (source, files), path in zip(shards, queries, strict=True):
            lines_by_image = group_by_image(read_lines(path))
            build = partial(_build_requests, way, lines_by_image, options, session.prompts)
            asked_requests = session.ask(source, files, build, sorted(lines_by_image))
            lines = [
                {"query_id": request.query_id, "shown": request.regions} | answer for request, answer in asked_requests
            ]
            write_lines(next(outputs), lines, checked=True)


def _build_requests(
    way: str,
    lines_by_image: Mapping[str, list[dict]],
    options: JudgeOptions,
    prompts: Prompts,
    source: str,
    image: Mapping,
    rows: list[dict],
    facts: Facts,
    picture: np.ndarray,
) -> dict[str, JudgeRequest]:
    views = Views(picture, rows)
    return {
        line["query_id"]: build_question(way, line, views, image, facts, options, prompts, source)
        for line in well_formed_queries(lines_by_image[image["image_id"]], views.rows)
    }


def find_contradiction(answer: Mapping, affirms: Sequence[str], denies: Sequence[str]) -> str | None:
    """Return why an answer {observed, grounded, unambiguous, reason} contradicts itself; None if it does not.

    affirms, denies: phrases for and against a query. A rejection needs a reason; one with phrases of both kinds is no
    contradiction.
    """
    if not answer["observed"].strip():
        return "observed: blank"
    accepted = answer["grounded"] and answer["unambiguous"]
    reason = " ".join(answer["reason"].lower().replace("’", "'").split())
    if not accepted and not reason:
        return "reason: blank"
    good, bad = _count_phrases(reason, affirms, denies)
    if accepted and bad and not good:
        return "reason: it speaks against what is accepted"
    if not accepted and good and not bad:
        return "reason: it speaks for what is rejected"
    return None


def _count_phrases(reason: str, affirms: Sequence[str], denies: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of affirming and denying phrases, longest first; a negated one counts for the other."""
    counts = [0, 0]
    phrases = sorted(
        [*((word, 0) for word in affirms), *((word, 1) for word in denies)], key=lambda phrase: -len(phrase[0])
    )
    for word, kind in phrases:
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        while match := pattern.search(reason):
            negated = _NEGATED.search(reason[: match.start()]) is not None
            counts[kind ^ negated] += 1
            reason = f"{reason[: match.start()]}; {reason[match.end() :]}"
    return counts[0], counts[1]
