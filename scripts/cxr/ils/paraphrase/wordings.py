"""Check the wordings of an instruction: each must have its meaning, and none may repeat."""

from collections.abc import Sequence

from cxr.ils.paraphrase.engine import Task
from cxr.ils.paraphrase.wording_checks import find_meaning_problem


def find_problem(wordings: Sequence[str], task: Task) -> str | None:
    """Return the problem of an instruction's wordings, with the number of the first bad one; None without a problem."""
    plain_texts = {_normalise(text) for text in (task.text, *task.taken)}
    for number, text in enumerate(wordings, 1):
        if _normalise(text) in plain_texts:
            return f"wording {number}: comes twice"
        plain_texts.add(_normalise(text))
        if problem := find_meaning_problem(text, task.meant):
            return f"wording {number}: {problem}"
    return None


def _normalise(text: str) -> str:
    """Return a text's letters and digits, for comparison."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())
