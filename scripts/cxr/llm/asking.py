"""Asking a model many questions: all at once, again where an answer is wrong, and set apart where it stays wrong."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from cxr.base.faults import NO_LIMIT, Broken, Tolerance
from cxr.llm.messages import Messages
from cxr.llm.schemas import problem_of

log = logging.getLogger("cxr")


@dataclass(frozen=True)
class Question:
    """One request: messages, the JSON schema of its answer, and the logic that the answer must keep besides."""

    messages: Messages
    schema: dict
    contradiction: Callable[[object], str | None] = lambda answer: None


@dataclass(frozen=True)
class Answer:
    """What came of a question: its value, or the problem and the raw text of the last attempt."""

    value: object = None
    problem: str | None = None
    raw: str = ""
    attempts: int = 0


Generate = Callable[[list[Question], int], list[str]]
"""Questions and the number of the attempt (from 0) in, one text a question out, in their order."""


@dataclass(frozen=True)
class Limits:
    """context, max_tokens: lengths in tokens; retries: how often a wrong answer is asked for again."""

    context: int
    max_tokens: int
    retries: int


def ask(questions: list[Question], generate: Generate, limits: Limits, tolerance: Tolerance = NO_LIMIT) -> list[Answer]:
    """Return the answer of every question, in order. One question's answer never touches another's.

    Raises Broken where none of at least ``tolerance.in_row`` answers can be used: no text is to blame for that.
    """
    room = limits.context - limits.max_tokens
    answers = [
        Answer() if _bytes(question.messages) <= room else Answer(problem="the text is too long for the model")
        for question in questions
    ]
    for attempt in range(limits.retries + 1):
        open_ = [number for number, answer in enumerate(answers) if _waits(answer)]
        if not open_:
            break
        if attempt:
            log.info("%d of %d answers break schema or logic: asked again", len(open_), len(questions))
        texts = generate([questions[number] for number in open_], attempt)
        for number, text in zip(open_, texts, strict=True):
            answers[number] = _read(text, questions[number], attempt + 1)
    tried = [answer for answer in answers if answer.attempts]
    if tolerance.in_row and len(tried) >= tolerance.in_row and all(answer.value is None for answer in tried):
        raise Broken(
            f"none of the model's {len(tried)} answers can be used ({tried[0].problem}): it is not the model that was "
            "meant, what it runs on is broken, or its server does not know response_format"
        )
    return answers


def _bytes(messages: Messages) -> int:
    """Return an upper bound of the tokens of a prompt: no tokenizer makes more tokens than bytes."""
    margin_a_message = 32  # the chat template's own tokens
    return sum(len(message["content"].encode("utf-8", "replace")) + margin_a_message for message in messages)


def _waits(answer: Answer) -> bool:
    return answer.value is None and (answer.attempts > 0 or answer.problem is None)


def _read(text: str, question: Question, attempts: int) -> Answer:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Answer(problem="not JSON", raw=text, attempts=attempts)
    problem = problem_of(value, question.schema) or question.contradiction(value)
    return Answer(None if problem else value, problem, text if problem else "", attempts)
