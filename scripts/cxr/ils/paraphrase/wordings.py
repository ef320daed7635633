"""Check the wordings of an instruction: each must have its meaning, and none may repeat."""

from collections.abc import Sequence

from cxr.ils.paraphrase.engine import Task
from cxr.ils.paraphrase.reading import meaning_problem


def problem_of(wordings: Sequence[str], task: Task) -> str | None:
    """Return the problem of an instruction's wordings, with the number of the first bad one; None without a problem."""
    plain_texts = {_plain(text) for text in (task.text, *task.taken)}
    for number, text in enumerate(wordings, 1):
        if _plain(text) in plain_texts:
            return f"wording {number}: comes twice"
        plain_texts.add(_plain(text))
        if problem := meaning_problem(text, task.meant):
            return f"wording {number}: {problem}"
    return None


def _plain(text: str) -> str:
    """Return a text's letters and digits, for comparison."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())
