"""Connecting to a language model by its transport: on a server, inside the job, or a stand-in for tests."""

from functools import cache

from cxr.base.errors import UserError
from cxr.llm import offline, server, stand_in
from cxr.llm.asking import Generate, Question, Reply
from cxr.llm.options import Execution, ModelOptions

TRANSPORTS = {"offline": offline.connect, "server": server.connect, "stand_in": stand_in.connect}


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return the function that asks the model. Raises UserError if it cannot be reached."""
    if options.transport not in TRANSPORTS:
        raise UserError(
            f"{options.key}.transport is {options.transport!r}: choose one of {', '.join(sorted(TRANSPORTS))}"
        )
    return TRANSPORTS[options.transport](options, execution)


def lazily(options: ModelOptions, execution: Execution) -> Generate:
    """Return the function that asks the model. It connects at the first question: an unused model is never loaded."""
    connected = cache(lambda: connect(options, execution))

    def generate(questions: list[Question], attempt: int) -> list[Reply]:
        return connected()(questions, attempt)

    return generate
