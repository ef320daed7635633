"""Structuring the sections of one shard with a language model (Figure 9); each distinct text is asked once.

Writes JSON Lines, one line per distinct text, sorted by ``text``: text (:func:`cxr.llm.keys.key_of` its sentences),
findings (the answer's list, null if no answer was usable), problem (null, or why), raw (the last answer if it was
unusable), attempts, model.
"""

import logging
from dataclasses import dataclass

from cxr.base.faults import NO_LIMIT, Tolerance
from cxr.base.tables import read_table, write_lines
from cxr.language.reports import reading
from cxr.language.reports.llm import answers, prompts
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.client import lazily
from cxr.llm.guards import INJECTION
from cxr.llm.keys import key_of
from cxr.llm.options import Execution, ModelOptions

log = logging.getLogger("cxr")
EXECUTION = "reports.llm.execution"


@dataclass(frozen=True)
class StructuringOptions(ModelOptions):
    """sections, section_overrides, max_characters: as in the stage's options; the rest: options of the model."""

    sections: str
    section_overrides: bool
    max_characters: int


def run(*, cohort: str, output: str, options: StructuringOptions, execution: dict, compute: dict | None = None) -> None:
    """Ask the model for the findings of every study of a cohort shard.

    Raises UserError if it cannot be reached, Broken if none of its answers is usable.
    """
    rows = read_table(cohort).sort("study_id", "rank", "image_id")
    studies = [images.to_dicts() for _, images in rows.group_by("study_id", maintain_order=True)]
    found = (reading.read(reading.row_of(images), options) for images in studies)
    texts = {key_of(each.sentences): each.sentences for each in found if isinstance(each, reading.Section)}
    log.info("structuring: %d studies, %d distinct texts", len(studies), len(texts))
    generate = lazily(options, Execution.of(execution, EXECUTION))
    lines = structured(dict(sorted(texts.items())), options, generate, Tolerance.of(compute))
    write_lines(output, lines, checked=True)


def structured(
    texts: dict[str, list[str]], options: ModelOptions, generate: Generate, tolerance: Tolerance = NO_LIMIT
) -> list[dict]:
    """Return a line for each text."""
    questions = {key: _asked(sentences) for key, sentences in texts.items()}
    got = ask_each(questions, generate, options.limits, tolerance)
    lines = [_line(key, answer, options.name) for key, answer in got.items()]
    log.info("structuring: %d answers, %d quarantined", len(lines), sum(line["problem"] is not None for line in lines))
    return lines


def _asked(sentences: list[str]) -> Question | Answer:
    if not sentences:
        return Answer(value={"findings": []})
    if prompts.addresses_the_model("\n".join(sentences)):
        return Answer(problem=INJECTION)
    return question(sentences)


def question(sentences: list[str]) -> Question:
    """Return the request for one section."""
    return Question(
        prompts.structuring(sentences),
        answers.structuring_schema(len(sentences)),
        lambda answer: answers.contradiction(answer["findings"]),
    )


def _line(key: str, answer: Answer, model: str) -> dict:
    return {
        "text": key,
        "findings": answer.value["findings"] if answer.value else None,
        "problem": answer.problem,
        "raw": answer.raw,
        "attempts": answer.attempts,
        "model": model,
    }
