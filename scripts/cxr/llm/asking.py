"""Asking a model many questions: all at once, again where an answer is wrong, and set apart where it stays wrong."""

import json
import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cxr.base.faults import NO_LIMIT, Broken, Tolerance
from cxr.llm.messages import Messages, parts_of
from cxr.llm.pictures import Picture
from cxr.llm.schemas import problem_of

log = logging.getLogger("cxr")
TOO_LONG = "the text is too long for the model"
"""The problem of a question that is not asked."""


@dataclass(frozen=True)
class Question:
    """One request: messages, the JSON schema of its answer, and the logic that the answer must keep besides."""

    messages: Messages
    schema: dict
    contradiction: Callable[[object], str | None] = lambda answer: None


@dataclass(frozen=True)
class Answer:
    """What came of a question: its value, or quarantine with the problem and the raw text of the last attempt."""

    value: object = None
    problem: str | None = None
    raw: str = ""
    attempts: int = 0


Name = TypeVar("Name", bound=Hashable)
Generate = Callable[[list[Question], int], list[str]]
"""Questions and the number of the attempt (from 0) in, one text a question out, in their order."""


@dataclass(frozen=True)
class Limits:
    """What bounds the questions to a model.

    key: the section of the settings that names it, for messages; context, max_tokens: lengths in tokens; retries: how
    often a wrong answer is asked for again; pictures: the most of a question; picture_tokens: the most tokens of one.
    """

    key: str
    context: int
    max_tokens: int
    retries: int
    pictures: int = 0
    picture_tokens: int = 0


def ask(questions: list[Question], generate: Generate, limits: Limits, tolerance: Tolerance = NO_LIMIT) -> list[Answer]:
    """Return the answer of every question, in order. One question's answer never touches another's.

    Raises Broken where none of at least ``tolerance.in_row`` answers can be used: no text is to blame for that.
    """
    room = limits.context - limits.max_tokens
    answers = [
        Answer(problem=None if _most_tokens(question.messages, limits) <= room else TOO_LONG) for question in questions
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
            f"{limits.key}: none of the model's {len(tried)} answers can be used ({tried[0].problem}): it is not the "
            "model that was meant, what it runs on is broken, or its server does not know response_format"
        )
    return answers


def ask_each(
    questions: Mapping[Name, Question | Answer], generate: Generate, limits: Limits, tolerance: Tolerance = NO_LIMIT
) -> dict[Name, Answer]:
    """Return the answer of every question under its name, as :func:`ask` does.

    What is an :class:`Answer` already, of a text that must not be asked or that has nothing to ask, stays as it is.
    """
    asked = {name: question for name, question in questions.items() if isinstance(question, Question)}
    got = dict(zip(asked, ask(list(asked.values()), generate, limits, tolerance), strict=True))
    return {name: got.get(name, question) for name, question in questions.items()}


def _most_tokens(messages: Messages, limits: Limits) -> int:
    """Return an upper bound of the tokens of a prompt: no tokenizer makes more tokens than bytes."""
    margin_a_message = 32  # the chat template's own tokens
    parts = parts_of(messages)
    pictures = sum(isinstance(part, Picture) for part in parts)
    if pictures > limits.pictures or (pictures and not limits.picture_tokens):
        raise ValueError(
            f"a question with {pictures} pictures, but the options of {limits.key} say at most {limits.pictures}, of "
            f"{limits.picture_tokens} tokens each"
        )
    texts = sum(len(part.encode("utf-8", "replace")) for part in parts if isinstance(part, str))
    return texts + margin_a_message * len(messages) + pictures * limits.picture_tokens


def _waits(answer: Answer) -> bool:
    return answer.value is None and (answer.attempts > 0 or answer.problem is None)


def _read(text: str, question: Question, attempts: int) -> Answer:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Answer(problem="not JSON", raw=text, attempts=attempts)
    problem = problem_of(value, question.schema) or question.contradiction(value)
    return Answer(None if problem else value, problem, text if problem else "", attempts)
