"""What wordings of an instruction must be, whoever made them: of its meaning, and none twice."""

from collections.abc import Sequence

from cxr.ils.paraphrase.engine import Task
from cxr.ils.paraphrase.reading import meaning_problem


def problem_of(wordings: Sequence[str], task: Task) -> str | None:
    """Return what is wrong with an instruction's wordings, with the number of the first bad one; None if nothing is."""
    seen = {_plain(text) for text in (task.text, *task.taken)}
    for number, text in enumerate(wordings, 1):
        if _plain(text) in seen:
            return f"wording {number}: comes twice"
        seen.add(_plain(text))
        if problem := meaning_problem(text, task.meant):
            return f"wording {number}: {problem}"
    return None


def _plain(text: str) -> str:
    """Return a text as it is compared: letters and digits alone."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())
