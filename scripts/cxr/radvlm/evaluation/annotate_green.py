"""GREEN: a language model counts the findings that an answer and its reference share, and the significant errors.

Its published prompt is not part of this repository: a user's file has it. What has no counts after the retries is a
line with its reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cxr.base.errors import UserError
from cxr.llm.answer_cache import make_resumable
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.guards import INJECTION, addresses_the_model, fill_slots, neutralize
from cxr.llm.options import Execution, ModelOptions
from cxr.radvlm.evaluation.green_answers import counts, problem_of

METRIC = "green"
PAIRS = True
INPUTS: dict[str, str] = {}
FILES = ("prompt",)
LLM = True
ENVIRONMENT = "vllm"
KEY = "radvlm.evaluation.green"
EXECUTION = "radvlm.evaluation.llm.execution"
SLOTS = ("{reference}", "{answer}")


def load(
    settings: Mapping, files: Mapping[str, str], execution: Mapping
) -> Callable[[Sequence[tuple[str, str]]], list[dict]]:
    """Return the annotator. ``settings``: model, as of ModelOptions, and prompt_bytes; ``files``: its prompt.

    The model is loaded at the first question, which raises UserError if it cannot be reached. Raises UserError for a
    prompt without its slots.
    """
    prompt = prompt_of(files["prompt"])
    model = ModelOptions(**settings["llm"])
    # the model's context is short: a bound of one token a byte would refuse common reports
    limits = replace(model.limits, context=settings["prompt_bytes"] + model.max_tokens)
    execution_options = Execution.from_settings(dict(execution), EXECUTION, "green_server")
    generate = make_resumable(connect_lazily(model, execution_options), model, execution)

    def annotate(pairs: Sequence[tuple[str, str]]) -> list[dict]:
        answer_by_pair = ask_each({pair: _asked(prompt, *pair) for pair in pairs}, generate, limits)
        return [_annotation(answer_by_pair[pair]) for pair in pairs]

    return annotate


def prompt_of(path: str) -> str:
    """Return the text of a prompt's file. Raises UserError for one that is not UTF-8 or lacks a slot."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{KEY}.prompt: {path} is not UTF-8: save it as such") from None
    for slot in SLOTS:
        if text.count(slot) != 1:
            raise UserError(f"{KEY}.prompt: {path} has {slot} {text.count(slot)} times: write it once")
    return text


def _asked(prompt: str, answer: str, reference: str) -> Question | Answer:
    if addresses_the_model(f"{answer}\n{reference}"):
        return Answer(problem=INJECTION)
    user = fill_slots(prompt, reference=neutralize(reference), answer=neutralize(answer))
    return Question([{"role": "user", "content": user}], None, problem_of)


def _annotation(answer: Answer) -> dict:
    if answer.value is None:
        return {"failure": answer.problem}
    return asdict(counts(str(answer.value)))
