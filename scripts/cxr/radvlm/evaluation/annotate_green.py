"""The annotator ``green``: a language model counts matched findings and clinically significant errors of an answer.

The published prompt is not in this repository; the user provides it. The reply has the format of GREEN's published
code. ``[Clinically Significant Errors]:`` is followed by lines such as ``(b) Kind of the error: 2. First error; second
error``. Then come ``[Clinically Insignificant Errors]:`` and ``[Matched Findings]:``, the latter with ``3. First
finding; …``. A part that is empty, or begins with "No" or "None", means 0. Kinds may be numbered (1) to (6). If a count
is missing, the model is asked again. After all attempts the annotation fails; the published code would count 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cxr.base.errors import UserError
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_resumably
from cxr.llm.guards import INJECTION, addresses_the_model, fill_slots, neutralize
from cxr.llm.options import ModelOptions
from cxr.radvlm.evaluation.answers import Annotate

METRIC = "green"
PAIRS = True
INPUTS: dict[str, str] = {}
FILES = ("prompt",)
LLM = True
ENVIRONMENT = "vllm"
KEY = "radvlm.evaluation.green"
SLOTS = ("{reference}", "{answer}")


def load(settings: Mapping, files: Mapping[str, str], execution: Mapping) -> Annotate:
    """Return the annotator. Its first question loads the model. Raises UserError if the prompt lacks a slot."""
    prompt = read_prompt(files["prompt"])
    model = ModelOptions(**settings["llm"])
    # the model's context is short: the usual bound of one token per byte would refuse common reports
    limits = replace(model, context=settings["prompt_bytes"] + model.max_tokens)
    generate = connect_resumably(model, execution)

    def annotate(pairs: Sequence[tuple[str, str]]) -> list[dict]:
        answer_by_pair = ask_each({pair: _question_or_problem(prompt, *pair) for pair in pairs}, generate, limits)
        answers = (answer_by_pair[pair] for pair in pairs)
        return [parse_counts(str(answer.value)) if answer.value else {"failure": answer.problem} for answer in answers]

    return annotate


def read_prompt(path: str) -> str:
    """Return the text of a prompt file. Raises UserError if it is not UTF-8 or does not have each slot once."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{KEY}.prompt: {path} is not UTF-8: save it in UTF-8") from None
    for slot in SLOTS:
        if text.count(slot) != 1:
            raise UserError(f"{KEY}.prompt: {path} has {slot} {text.count(slot)} times: write {slot} once")
    return text


def _question_or_problem(prompt: str, answer: str, reference: str) -> Question | Answer:
    if addresses_the_model(f"{answer}\n{reference}"):
        return Answer(problem=INJECTION)
    user = fill_slots(prompt, reference=neutralize(reference), answer=neutralize(answer))
    return Question([{"role": "user", "content": user}], None, find_problem)


SIGNIFICANT, MATCHED = "clinically significant errors", "matched findings"
KINDS = "abcdef"
_HEADING = re.compile(r"^[ \t]*\**\[([A-Za-z][A-Za-z ]{0,60})\]\**[ \t]*:?\**", re.MULTILINE)
_KIND = re.compile(r"\(([A-Za-z]|\d)\)(?=[^:\n]{0,160}:)")
_COUNT = re.compile(r"[^:\n]*:[\s*]*(?:(\d{1,3})(?![\d.]*\d)|(none|no)\b)", re.IGNORECASE | re.ASCII)
_NOTHING = re.compile(r"(?:none|no)\b|\Z", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,3})(?:\.(?!\d)|\s*\Z)", re.ASCII)
_LISTED = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)


def parse_counts(text: str) -> dict[str, int]:
    """Return {"matched": number of matched findings, "errors": number of significant errors} in a reply. Raises
    ValueError if a number is missing."""
    _, *headings_and_parts = _HEADING.split(text)
    names = [" ".join(heading.lower().split()) for heading in headings_and_parts[::2]]
    if len(set(names)) < len(names):
        raise ValueError("the reply has a heading twice")
    parts = dict(zip(names, map(str.strip, headings_and_parts[1::2]), strict=True))
    for name in (SIGNIFICANT, MATCHED):
        if name not in parts:
            raise ValueError(f"the reply lacks the heading '{name}'")
    return {"matched": _count_matched(parts[MATCHED]), "errors": _count_errors(parts[SIGNIFICANT])}


def find_problem(text: object) -> str | None:
    """Return the reason why a reply has no valid counts, or None if its counts are valid."""
    try:
        parse_counts(str(text))
    except ValueError as error:
        return str(error)
    return None


def _count_errors(part: str) -> int:
    if _NOTHING.match(part):
        return 0
    count_by_kind: dict[str, int] = {}
    for mark in _KIND.finditer(part):
        name = mark.group(1).lower()
        kind = KINDS[int(name) - 1] if name in "123456" else name
        if kind not in KINDS or kind in count_by_kind:
            raise ValueError(f"the reply has the error kind ({name}), which is unknown or occurs twice")
        count = _COUNT.match(part, mark.end())
        if not count:
            raise ValueError(f"the reply gives no count for the error kind ({name})")
        count_by_kind[kind] = int(count.group(1) or 0)
    if not count_by_kind:
        raise ValueError("the reply gives no kind for significant errors")
    return sum(count_by_kind.values())


def _count_matched(part: str) -> int:
    if _NOTHING.match(part):
        return 0
    number = _NUMBER.match(part)
    if not number:
        raise ValueError("the reply gives no count of matched findings")
    if len(_LISTED.findall(part)) > 1:
        raise ValueError("the reply lists matched findings without their count")
    return int(number.group(1))
