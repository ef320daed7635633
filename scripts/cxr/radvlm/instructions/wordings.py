"""Wordings of questions and answers: drawn for each fact and pass, the same in any order of the work."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.base.seeds import rng, stable_hash
from cxr.instructions.record import Turn

RESOURCE_FILES = ("radvlm/instructions.yaml",)
ASKED_AS = {"absent_grounding": "abnormality_grounding"}
"""{task: the task whose questions it has}: a question must not tell its answer."""
KINDS = ("answers", "some", "none")
"""Kinds of answers: the only one, or where there is something to tell, and where there is nothing."""
SLOT = re.compile(r"\{([a-z][a-z ]*)\}")


@dataclass(frozen=True)
class Wordings:
    """Of one task. questions: {id: text}; answers: {kind: {id: text}}."""

    questions: Mapping[str, str]
    answers: Mapping[str, Mapping[str, str]]


@cache
def wordings() -> dict[str, Wordings]:
    """Return {task: its wordings}."""
    held = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    found = {}
    for task, told in held.items():
        asked = held[ASKED_AS.get(task, task)]["questions"]
        questions = {key: text for register in asked.values() for key, text in register.items()}
        found[task] = Wordings(questions, {kind: told[kind] for kind in KINDS if kind in told})
    return found


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Return a wording with its slots filled in one pass, its first letter a capital.

    What is filled in is not looked at again: braces in it stay. Raises KeyError for a slot that is not given.
    """
    made = SLOT.sub(lambda slot: slots[slot[1]], text)
    return made[:1].upper() + made[1:]


def turn(task: str, kind: str, drawn_for: tuple, number: int, slots: Mapping[str, str]) -> Turn:
    """Return the worded turn of a fact in a pass.

    ``kind``: of the answer; ``drawn_for``: (seed, source, id of the fact or image); ``number``: the pass. The ids of
    the questions stand in an order that is drawn once, so that none comes twice before all have come.
    """
    held = wordings()[task]
    order, frames = _order(task, drawn_for), list(held.answers[kind])
    asked, answered = order[number % len(order)], frames[stable_hash(*drawn_for, task, number) % len(frames)]
    question, answer = fill(held.questions[asked], slots), fill(held.answers[kind][answered], slots)
    return Turn(question, answer, f"{task}:{asked}/{answered}")


@lru_cache(maxsize=64)
def _order(task: str, drawn_for: tuple) -> list[str]:
    """Return the questions of a task in the order in which the passes of a fact take them, which follow each other."""
    order = list(wordings()[task].questions)
    rng(*drawn_for, task).shuffle(order)
    return order
