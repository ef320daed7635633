"""Wordings of questions and answers. A hash of fact and pass chooses them, so processing order has no effect."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from cxr.base.resources import load_resource
from cxr.base.seeds import make_rng, stable_hash
from cxr.instructions.record import Turn

RESOURCE_FILES = ("radvlm/names.yaml", "radvlm/instructions.yaml")


@dataclass(frozen=True)
class SpokenNames:
    """The words by which sentences name labels, findings and regions."""

    wording_by_name: dict[str, str]  # {name: words}, for names that sentences do not use as they are
    articles: dict[str, str]  # {words: article}
    regions: tuple[str, ...]  # regions that questions ask about

    def say(self, name: str) -> str:
        """Return the words for a name, in lower case."""
        return self.wording_by_name.get(name, name).lower()

    def with_article(self, words: str) -> str:
        """Return the words with "a" or "an" before them, if they take an article."""
        article = self.articles.get(words.lower())
        return f"{article} {words}" if article else words


@cache
def load_spoken_names() -> SpokenNames:
    """Return the names, which are loaded once per process."""
    resource = load_resource(RESOURCE_FILES[0])
    articles = {words: article for article, word_list in resource["articles"].items() for words in word_list}
    return SpokenNames(resource["said"], articles, tuple(resource["regions"]))


QUESTIONS_FROM = {"absent_grounding": "abnormality_grounding"}  # {task: task with the same questions}
KINDS = ("answers", "some", "none")  # kinds of answers: the only one of a task; with findings; without findings
SLOT = re.compile(r"\{([a-z][a-z ]*)\}")


@dataclass(frozen=True)
class Wordings:
    """The wordings of one task."""

    questions: Mapping[str, str]  # {id: text}
    answers: Mapping[str, Mapping[str, str]]  # {kind of answer: {id: text}}


@cache
def load_wordings() -> dict[str, Wordings]:
    """Return {task: wordings}, which are loaded once per process."""
    resource = load_resource(RESOURCE_FILES[1])
    wordings_by_task = {}
    for task, task_entry in resource.items():
        questions_by_register = resource[QUESTIONS_FROM.get(task, task)]["questions"]
        questions = {key: text for register in questions_by_register.values() for key, text in register.items()}
        wordings_by_task[task] = Wordings(questions, {kind: task_entry[kind] for kind in KINDS if kind in task_entry})
    return wordings_by_task


def fill_slots(text: str, slots: Mapping[str, str]) -> str:
    """Return a wording, capitalized, with its slots filled in. Raises KeyError if a slot has no value."""
    filled_text = SLOT.sub(lambda slot: slots[slot[1]], text)
    return filled_text[:1].upper() + filled_text[1:]


def word_turn(task: str, kind: str, drawn_for: tuple, number: int, slots: Mapping[str, str]) -> Turn:
    """Return the question and answer of pass ``number``. All question wordings are used before one repeats. ``kind``:
    kind of answer, from KINDS; ``drawn_for``: (seed, source, key of the question), which determines the wordings."""
    task_wordings = load_wordings()[task]
    order, answer_ids = _question_order(task, drawn_for), list(task_wordings.answers[kind])
    question_id = order[number % len(order)]
    answer_id = answer_ids[stable_hash(*drawn_for, task, number) % len(answer_ids)]
    question = fill_slots(task_wordings.questions[question_id], slots)
    answer = fill_slots(task_wordings.answers[kind][answer_id], slots)
    return Turn(question, answer, f"{task}:{question_id}/{answer_id}")


@lru_cache(maxsize=64)
def _question_order(task: str, drawn_for: tuple) -> list[str]:
    order = list(load_wordings()[task].questions)
    make_rng(*drawn_for, task).shuffle(order)
    return order
