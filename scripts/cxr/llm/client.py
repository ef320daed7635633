"""Connecting to a language model: on a server, inside the job, or a stand-in for tests."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

from cxr.base.errors import UserError
from cxr.llm import offline, server
from cxr.llm.answer_cache import answer_digest, cache_replies
from cxr.llm.asking import Generate, Question
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.replies import Reply


def connect_stand_in(options: ModelOptions, execution: Execution) -> Generate:
    """Return a function that asks the Python function ``options.model``, written module:function. It is for tests."""
    del execution
    try:
        answer = resolve_name(options.model)
    except (ImportError, AttributeError, ValueError):
        answer = None
    if not callable(answer):
        raise UserError(f"{options.key}.model: {options.model!r} is not a function: give one as module:function")

    def generate(questions: list[Question], attempt: int) -> list[Reply]:
        return [answer(question.messages, question.schema) for question in questions]

    return generate


TRANSPORTS = {"offline": offline.connect, "server": server.connect, "stand_in": connect_stand_in}


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return a function that asks the model. Raises UserError if the model cannot be reached."""
    return TRANSPORTS[options.transport](options, execution)


def connect_lazily(options: ModelOptions, settings: Mapping) -> Generate:
    """Return a function that connects to the model at the first question. ``settings`` is the section ``llm``."""
    connected = cache(lambda: connect(options, Execution.from_settings(settings, options.model)))

    def generate(questions: list[Question], attempt: int) -> list[Reply]:
        return connected()(questions, attempt)

    return generate


def connect_resumably(options: ModelOptions, execution: Mapping) -> Generate:
    """Connect like :func:`connect_lazily`. If ``execution["answers"]`` names a folder, replies are cached in it."""
    generate = connect_lazily(options, execution)
    if not execution.get("answers"):
        return generate
    digest = answer_digest(options, execution.get("code", ""))
    return cache_replies(generate, folder=Path(execution["answers"]), digest=digest)
