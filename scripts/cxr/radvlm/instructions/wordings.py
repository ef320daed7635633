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
QUESTIONS_FROM = {"absent_grounding": "abnormality_grounding"}
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
def load_wordings() -> dict[str, Wordings]:
    """Return {task: its wordings}."""
    resource = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    wordings_by_task = {}
    for task, task_entry in resource.items():
        questions_by_register = resource[QUESTIONS_FROM.get(task, task)]["questions"]
        questions = {key: text for register in questions_by_register.values() for key, text in register.items()}
        wordings_by_task[task] = Wordings(questions, {kind: task_entry[kind] for kind in KINDS if kind in task_entry})
    return wordings_by_task


def fill_slots(text: str, slots: Mapping[str, str]) -> str:
    """Return a wording with its slots filled in one pass, its first letter a capital.

    What is filled in is not looked at again: braces in it stay. Raises KeyError for a slot that is not given.
    """
    filled_text = SLOT.sub(lambda slot: slots[slot[1]], text)
    return filled_text[:1].upper() + filled_text[1:]


def word_turn(task: str, kind: str, drawn_for: tuple, number: int, slots: Mapping[str, str]) -> Turn:
    """Return the worded turn of a fact in a pass.

    ``kind``: of the answer; ``drawn_for``: (seed, source, id of the fact or image); ``number``: the pass. The ids of
    the questions stand in an order that is drawn once, so that none comes twice before all have come.
    """
    task_wordings = load_wordings()[task]
    order, answer_ids = _question_order(task, drawn_for), list(task_wordings.answers[kind])
    question_id, answer_id = (
        order[number % len(order)],
        answer_ids[stable_hash(*drawn_for, task, number) % len(answer_ids)],
    )
    question, answer = (
        fill_slots(task_wordings.questions[question_id], slots),
        fill_slots(task_wordings.answers[kind][answer_id], slots),
    )
    return Turn(question, answer, f"{task}:{question_id}/{answer_id}")


@lru_cache(maxsize=64)
def _question_order(task: str, drawn_for: tuple) -> list[str]:
    """Return the questions of a task in the order in which the passes of a fact take them, which follow each other."""
    order = list(load_wordings()[task].questions)
    rng(*drawn_for, task).shuffle(order)
    return order
