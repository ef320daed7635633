"""A rule-based stand-in for a model, for tests. Only a test's options choose it; no setting does.

``model`` names a function, ``module:function``. It takes the messages and the answer's schema and returns a text.
"""

from pkgutil import resolve_name

from cxr.base.errors import UserError
from cxr.llm.asking import Generate, Question
from cxr.llm.options import Execution, ModelOptions


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return the function that asks the stand-in. Raises UserError if ``model`` names no function."""
    del execution
    try:
        answer = resolve_name(options.model)
    except (ImportError, AttributeError, ValueError):
        answer = None
    if not callable(answer):
        raise UserError(f"{options.key}.model: {options.model!r} names no function: give one as module:function")

    def generate(questions: list[Question], attempt: int) -> list[str]:
        return [answer(question.messages, question.schema) for question in questions]

    return generate
