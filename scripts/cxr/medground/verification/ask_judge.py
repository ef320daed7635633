"""Ask a language model that sees images to judge queries, by the task ``confirm``, by the task ``select``, or by both.

In ``confirm``, the model sees the answer outlined, describes it, and says whether the query fits it (grounded) and
nothing else (unambiguous). In ``select``, it sees numbered regions that may be answers, and returns the numbers that
the query means. The output has a JSON line for each query that passes stage I, the check of its form. ``shown``:
regions drawn on the image. ``answer``: the reply, null if none is usable; then ``problem`` says why, and ``raw`` is the
last reply."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from cxr.base.tables import read_lines, write_lines
from cxr.llm.asking import Answer, Question
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.messages import PromptImage, fill_prompt
from cxr.llm.replies import object_schema, text_schema
from cxr.medground import asking
from cxr.medground.logic.facts import group_by_image
from cxr.medground.logic.text import FIELDS
from cxr.medground.verification.text_rules import find_form_fault

SELECT_FROM = 20  # most candidates that the task select shows
_NEGATED = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|hardly|isn't|doesn't|don't|aren't)\b(?:\s+\w+){0,3}\s*$"
)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(asking.AskingOptions):
    """Options of the judge's model. ``ways``: the tasks of the job, which are ``confirm``, ``select`` or both."""

    ways: Sequence[str] = ()


Views = Callable[..., PromptImage]  # takes a task and regions; returns the image for the prompt


def make_views(picture: np.ndarray, rows: Mapping[int, Mapping]) -> Views:
    """Return a function that draws boxes of regions on the image, numbered for the task ``select``. It draws each view
    once, so that questions about one view share the beginning of their prompt. ``rows``: {region: its row}."""

    @cache
    def draw(way: str, *regions: int) -> PromptImage:
        return asking.draw_boxes(picture, [rows[region] for region in regions], is_numbered=way == "select")

    return draw


def candidates_to_show(answer: Sequence[int], rows: Mapping[int, Mapping], most: int = SELECT_FROM) -> list[int]:
    """Return the regions that the task ``select`` shows: the answer and the candidates nearest to it, ``most`` in
    total. If the answer has ``most`` regions or more, all are shown, because the answer would otherwise be obvious."""
    candidates = [region for region, row in rows.items() if row["candidate"]]
    if len(candidates) <= most or len(answer) >= most:
        return sorted(candidates)
    places = {region: np.array([rows[region]["cx"], rows[region]["cy"]], np.float64) for region in candidates}

    def distance(region: int) -> float:
        return min(float(np.hypot(*(places[member] - places[region]))) for member in answer)

    other_candidates = sorted(set(candidates) - set(answer), key=lambda region: (distance(region), region))
    return sorted([*answer, *other_candidates[: most - len(answer)]])


CONFIRM_SCHEMA = object_schema(
    observed=text_schema(asking.MAX_CHARACTERS),
    grounded={"type": "boolean"},
    unambiguous={"type": "boolean"},
    reason={"type": "string", "maxLength": asking.MAX_CHARACTERS},
)
"""JSON schema of an answer to the task ``confirm``."""


def select_schema(regions: Sequence[int]) -> dict:
    """Return the JSON schema of an answer to the task ``select``: a list of numbers that are drawn on the boxes."""
    numbers = [region + 1 for region in regions]
    return object_schema(targets={"type": "array", "items": {"enum": numbers}, "maxItems": len(numbers)})


def build_question(
    way: str, line: Mapping, views: Views, subject: asking.Subject, options: JudgeOptions, prompts: asking.Prompts
) -> asking.Request:
    """Return the request to judge the query of ``line`` by the task ``way``, ``confirm`` or ``select``. No model is
    asked if the query contains instructions to a model."""
    regions, facts, domain = list(line["regions"]), subject.facts, subject.image["domain"]
    if way == "select":
        regions = candidates_to_show(regions, {row["region"]: row for row in subject.rows})
    fields = {"query_id": line["query_id"], "shown": regions}
    if addresses_the_model(f"{line['query']}\n{facts.modality}", FIELDS):
        return asking.Request(fields, Answer(problem=INJECTION))
    slot_values = {"modality": neutralize(facts.modality or domain), "query": neutralize(line["query"])}
    messages = fill_prompt(prompts.prompt(way, domain), [views(way, *regions)], **slot_values)
    words = prompts.words("affirms"), prompts.words("denies")

    def contradiction(answer: dict) -> str | None:
        if way == "confirm":
            return find_contradiction(answer, *words)
        return "targets has a number twice" if len(set(answer["targets"])) < len(answer["targets"]) else None

    schema = select_schema(regions) if way == "select" else CONFIRM_SCHEMA
    seed = options.seed_of(subject.source, line["query_id"], way)
    return asking.Request(fields, Question(messages, schema, contradiction, seed))


def run(
    *, sources: Sequence[str], images: Sequence[str], regions: Sequence[str], queries: Sequence[str],
    answers: Sequence[str], options: JudgeOptions, execution: dict, code: str = "", compute: dict | None = None,
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the model's judgements of all queries that pass stage I, the check of their form. The model is loaded once
    for all shards. ``answers``: output files, one per shard for the first of ``options.ways``, then for the second.
    Raises UserError if the model cannot be reached, and Broken if none of its answers can be used."""
    session = asking.ModelSession(options, execution, answers, code, compute, prompts)
    shards, outputs = session.list_shards(sources, images, regions), iter(answers)

    def build(way: str, lines_by_image: Mapping[str, list], subject: asking.Subject) -> Iterator[asking.Request]:
        views = make_views(subject.picture, {row["region"]: row for row in subject.rows})
        for line in lines_by_image[subject.image["image_id"]]:
            if find_form_fault(line, subject.rows) is None:
                yield build_question(way, line, views, subject, options, session.prompts)

    for way in options.ways:
        for files, path in zip(shards, queries, strict=True):
            lines_by_image = group_by_image(read_lines(path))
            lines = session.ask(files, partial(build, way, lines_by_image), sorted(lines_by_image))
            write_lines(next(outputs), lines, checked=True)


def find_contradiction(answer: Mapping, affirms: Sequence[str], denies: Sequence[str]) -> str | None:
    """Return why an answer {observed, grounded, unambiguous, reason} contradicts itself, or None if it does not.
    ``affirms`` and ``denies``: phrases for and against a query. A reason with both kinds is no contradiction."""
    if not answer["observed"].strip():
        return "observed is blank"
    accepted = answer["grounded"] and answer["unambiguous"]
    reason = " ".join(answer["reason"].lower().replace("’", "'").split())
    if not accepted and not reason:
        return "reason is blank"
    phrases = [(word, speaks_for) for words, speaks_for in ((affirms, True), (denies, False)) for word in words]
    statements = set()
    for word, speaks_for in sorted(phrases, key=lambda phrase: -len(phrase[0])):
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        while match := pattern.search(reason):
            statements.add(speaks_for != bool(_NEGATED.search(reason[: match.start()])))
            reason = f"{reason[: match.start()]}; {reason[match.end() :]}"
    if statements == {not accepted}:
        return f"reason speaks {'against an accepted query' if accepted else 'for a rejected query'}"
    return None
