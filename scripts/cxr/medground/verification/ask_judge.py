"""Ask a language model that sees images to judge queries, in one of two ways or in both.

confirm: it sees the answer outlined, describes it, and says whether the query is grounded and unambiguous. select: it
sees the numbered candidates, not the answer, and gives the numbers that the query means.

Writes JSON Lines, one line for each query of good form, by image and query: query_id, shown (regions on the picture),
answer (the model's, null if none could be used), problem (null, or why), raw (the last answer if it could not be used),
attempts, model.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.faults import Tolerance
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.messages import fill_prompt
from cxr.llm.options import Execution
from cxr.llm.replies import object_schema, text_schema
from cxr.medground.asking.options import IMAGES_PER_BATCH, AskingOptions, build_generate
from cxr.medground.asking.prompts import Prompts
from cxr.medground.asking.views import box_number, draw_numbered, draw_outlined
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.text import FIELDS
from cxr.medground.verification.text_rules import find_form_fault

log = logging.getLogger("cxr")
EXECUTION = "medground.verification.llm.execution"
MAX_CHARACTERS = 400
"""Longest observation or reason of a judge, in characters."""
SIDES = ("gx1", "gy1", "gx2", "gy2")


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(AskingOptions):
    """select_from: most candidates on a picture for select, the answer and those nearest to it; ways: in which a job
    asks, confirm and select.
    """

    ways: Sequence[str] = ()
    select_from: int = 20


class Views:
    """The pictures of one image, each made once: questions about the same picture share their prefix."""

    def __init__(self, picture: np.ndarray, rows: Sequence[Mapping]):
        self.picture, self.rows = picture, {row["region"]: row for row in rows}
        self._made: dict[tuple, PromptImage] = {}

    def candidates(self) -> list[int]:
        """Return the regions that may be an answer."""
        return [region for region, row in self.rows.items() if row["candidate"]]

    def draw(self, way: str, regions: Sequence[int]) -> PromptImage:
        """Return the picture of a way of asking with some regions."""
        key = (way, *regions)
        if key not in self._made:
            draw = draw_numbered if way == "select" else draw_outlined
            self._made[key] = draw(self.picture, [self.rows[region] for region in regions])
        return self._made[key]


def candidates_to_show(
    answer: Sequence[int], rows: Mapping[int, Mapping], candidates: Sequence[int], most: int
) -> list[int]:
    """Return the candidates that select shows: all, or the answer and those nearest to it, ``most`` in total.

    For an answer of ``most`` regions or more, all candidates are shown; otherwise the answer would be obvious.
    """
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


def _find_repeated_target(answer: dict) -> str | None:
    return "targets: a number twice" if len(set(answer["targets"])) < len(answer["targets"]) else None


def build_question(
    way: str, line: Mapping, views: Views, image: Mapping, facts: Facts, options: JudgeOptions, prompts: Prompts
) -> tuple[list[int], Question | Answer]:
    """Return the regions on the image, and the question about a query, or why it is not asked."""
    regions = list(line["regions"])
    if way == "select":
        regions = candidates_to_show(line["regions"], views.rows, views.candidates(), options.select_from)
    if addresses_the_model(f"{line['query']}\n{facts.modality}", FIELDS):
        return regions, Answer(problem=INJECTION)
    slot_values = {"modality": neutralize(facts.modality or image["domain"]), "query": neutralize(line["query"])}
    messages = fill_prompt(prompts.prompt(way, image["domain"]), [views.draw(way, regions)], **slot_values)
    seed = options.seed_of(line["query_id"], way)
    if way == "select":
        return regions, Question(messages, select_schema(regions), _find_repeated_target, seed)
    words = prompts.words("affirms"), prompts.words("denies")
    return regions, Question(messages, confirm_schema(), lambda answer: find_contradiction(answer, *words), seed)


def well_formed_queries(lines: Iterable[Mapping], rows: Mapping[int, Mapping]) -> list[Mapping]:
    """Return the queries of one image that pass stage I; the others are not asked about."""
    boxes = {region: [row[side] for side in SIDES] for region, row in rows.items()}
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
    tables, wordings = dict(zip(dict.fromkeys(options.of), images, strict=True)), Prompts.read(*prompts)
    generate = build_generate(options, Execution.from_settings(execution, EXECUTION), answers, code)
    tolerance = Tolerance.from_settings(compute)
    outputs = iter(answers)
    for way in options.ways:
        for shard_options, source, boxes, lines in zip(options.each, sources, regions, queries, strict=True):
            row_by_image = {
                row["image_id"]: row for row in read_table(tables[shard_options.source]).iter_rows(named=True)
            }
            asks = _JudgeRequests(way, shard_options, wordings, generate, tolerance)
            write_lines(next(outputs), asks.lines(source, boxes, lines, row_by_image), checked=True)


@dataclass(frozen=True)
class _JudgeRequests:
    """One way of asking the judge about the queries of a source."""

    way: str
    options: JudgeOptions
    wordings: Prompts
    generate: Generate
    tolerance: Tolerance

    def lines(self, source: str, regions: str, queries: str, row_by_image: Mapping[str, dict]) -> list[dict]:
        """Return the lines of one shard. ``row_by_image``: rows of the source's images by their ids."""
        by_image, lines = defaultdict(list), defaultdict(list)
        for row in read_table(regions).iter_rows(named=True):
            by_image[row["image_id"]].append(row)
        for line in read_lines(queries):
            lines[line["image_id"]].append(line)
        answer_lines, names = [], sorted(lines)
        with Shard(source) as shard:
            facts = Facts.from_shard(shard)
            for first in range(0, len(names), IMAGES_PER_BATCH):
                regions_by_query, questions = {}, {}
                for name in names[first : first + IMAGES_PER_BATCH]:
                    views = Views(shard.get("picture", name), by_image[name])
                    for line in well_formed_queries(lines[name], views.rows):
                        regions_by_query[line["query_id"]], questions[line["query_id"]] = build_question(
                            self.way, line, views, row_by_image[name], facts, self.options, self.wordings
                        )
                answers = ask_each(questions, self.generate, self.options.limits, self.tolerance)
                answer_lines += [
                    _line(name, regions_by_query[name], answer, self.options.name) for name, answer in answers.items()
                ]
                at = min(first + IMAGES_PER_BATCH, len(names))
                log.info("verification: %s is asked of %d of %d images of %s", self.way, at, len(names), source)
        return answer_lines


def _line(query_id: str, regions: list[int], answer: Answer, model: str) -> dict:
    return {
        "query_id": query_id,
        "shown": regions,
        "answer": answer.value,
        "problem": answer.problem,
        "raw": answer.raw,
        "attempts": answer.attempts,
        "model": model,
    }


_NEGATED = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|hardly|isn't|doesn't|don't|aren't)\b(?:\s+\w+){0,3}\s*$"
)


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
