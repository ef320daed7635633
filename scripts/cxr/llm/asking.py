"""Asking a model many questions at once. A question with an invalid answer is asked again, a few times at most."""

import json
import logging
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cxr.base.faults import Broken
from cxr.llm.messages import Messages, PromptImage, content_parts
from cxr.llm.options import ModelOptions
from cxr.llm.replies import NoAnswer, Reply, without_reasoning

log = logging.getLogger("cxr")
TOO_LONG = "the text is too long for the model"  # problem in the answer to a question that is too long to be sent
_FENCE = re.compile(r"\s*```(?:json)?\s(.*?)\s*```\s*", re.DOTALL | re.IGNORECASE)
"""Pattern of an answer inside a Markdown code fence."""


@dataclass(frozen=True)
class Question:
    """A question: messages, the JSON schema of the answer, and a further check of the answer. ``schema`` is None for an
    answer in free text. ``contradiction`` returns a description of the answer's fault, or None for a valid answer.
    ``seed`` is the sampling seed, None to use the seed in the options."""

    messages: Messages
    schema: dict | None
    contradiction: Callable[[object], str | None] = lambda answer: None
    seed: int | None = None


@dataclass(frozen=True)
class Answer:
    """Answer to a question. It has a valid value, or the problem and the raw text of the last attempt."""

    value: object = None
    problem: str | None = None
    raw: str = ""
    attempts: int = 0


Name = TypeVar("Name", bound=Hashable)
Generate = Callable[[list[Question], int], list[Reply]]
"""Function that takes questions and the number of the attempt, from 0, and returns one reply per question, in order."""


def ask(
    questions: list[Question], generate: Generate, options: ModelOptions, compute: dict | None = None
) -> list[Answer]:
    """Ask questions, repeat those with an invalid answer, and return all answers in order. Raises Broken if all answers
    are invalid and there are at least ``compute["failures_in_row"]`` of them."""
    room = options.context - options.max_tokens
    fits = [_max_tokens(question.messages, options) <= room for question in questions]
    answers = [Answer(problem=None if is_short else TOO_LONG) for is_short in fits]
    for attempt in range(options.retries + 1):
        open_numbers = [number for number, answer in enumerate(answers) if fits[number] and answer.value is None]
        if not open_numbers:
            break
        if attempt:
            log.info("%d of %d answers are invalid: asking again", len(open_numbers), len(questions))
        replies = generate([questions[number] for number in open_numbers], attempt)
        for number, reply in zip(open_numbers, replies, strict=True):
            answers[number] = _check_reply(reply, questions[number], attempt + 1)
    tried = [answer for answer in answers if answer.attempts]
    most = (compute or {}).get("failures_in_row")
    if most and len(tried) >= most and all(answer.value is None for answer in tried):
        raise Broken(
            f"{options.key}: none of the model's {len(tried)} answers can be used ({tried[0].problem}): check that it "
            "is the intended model, that its machine works, and that its server supports response_format"
        )
    return answers


def ask_each(
    questions: Mapping[Name, Question | Answer], generate: Generate, options: ModelOptions, compute: dict | None = None
) -> dict[Name, Answer]:
    """Ask named questions and return {name: answer}. An :class:`Answer` among the questions is returned unchanged."""
    names = [name for name, question in questions.items() if isinstance(question, Question)]
    asked_questions = [question for question in questions.values() if isinstance(question, Question)]
    answer_by_name = dict(zip(names, ask(asked_questions, generate, options, compute), strict=True))
    return {
        name: question if isinstance(question, Answer) else answer_by_name[name] for name, question in questions.items()
    }


def _max_tokens(messages: Messages, options: ModelOptions) -> int:
    """Return an upper bound of a prompt's number of tokens. It counts bytes, because a token has at least one byte."""
    margin_a_message = 32  # the chat template's own tokens
    parts = content_parts(messages)
    pictures = sum(isinstance(part, PromptImage) for part in parts)
    if pictures > options.pictures or (pictures and not options.picture_tokens):
        raise ValueError(
            f"a question has {pictures} images, but the options of {options.key} allow {options.pictures} images "
            f"of {options.picture_tokens} tokens: raise ModelOptions.pictures or picture_tokens"
        )
    texts = sum(len(part.encode("utf-8", "replace")) for part in parts if isinstance(part, str))
    return texts + margin_a_message * len(messages) + pictures * options.picture_tokens


def _check_reply(reply: Reply, question: Question, attempts: int) -> Answer:
    if isinstance(reply, NoAnswer):
        return Answer(problem=f"no answer: {reply.reason}", attempts=attempts)
    if question.schema is None:
        text = without_reasoning(reply)
        problem = question.contradiction(text)
        return Answer(None if problem else text, problem, reply if problem else "", attempts)
    try:
        try:
            value = json.loads(reply)
        except ValueError:  # remove closed reasoning and a code fence around the answer
            answer = without_reasoning(reply)
            fence_match = _FENCE.fullmatch(answer)
            value = json.loads(fence_match[1] if fence_match else answer)
    except (ValueError, RecursionError):
        return Answer(problem="not JSON", raw=reply, attempts=attempts)
    problem = find_violation(value, question.schema) or question.contradiction(value)
    return Answer(None if problem else value, problem, reply if problem else "", attempts)


def find_violation(answer: object, schema: dict) -> str | None:
    """Return the first violation of the schema, or None. The description does not quote the answer."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(answer), None)
    if error is None:
        return None
    return f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {error.validator}"
