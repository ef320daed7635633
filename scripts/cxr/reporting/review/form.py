"""The form of a page: the questions that an expert answers about every item, their answers and keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import ascii_lowercase

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("review/forms.yaml",)
PAGE_KEYS = frozenset("ujmocns")
"""Letters that the page itself uses."""


@dataclass(frozen=True)
class Choice:
    """One answer: its value in the sheet, its label, key and mark on the page. ``id``: of its button, or empty."""

    value: str
    label: str
    key: str
    id: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Question:
    """A question about each item. ``name``: its column of the sheet; ``text``: what stands above its answers."""

    name: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """Its answers as the sheet holds them."""
        return tuple(choice.value for choice in self.choices)


@dataclass(frozen=True)
class Form:
    """The heading of a page and its questions.

    ``sheet``: what a saved sheet's name begins with; ``blind``: nothing may tell an item's source; ``outline``: masks
    are at first shown as outlines.
    """

    title: str
    sheet: str
    blind: bool
    questions: tuple[Question, ...]
    outline: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a sheet."""
        return ("item", *(question.name for question in self.questions), "note", "seconds", "page")

    def shown(self) -> dict:
        """Return the form as the page's data."""
        form_data = {"sheet": self.sheet, "questions": [asdict(question) for question in self.questions]}
        return form_data | ({"outline": True} if self.outline else {})


def read_form(name: str, label_overrides: Mapping[str, Mapping[str, str]] | None = None) -> Form:
    """Return a form of resources/review/forms.yaml.

    ``label_overrides``: {question: {value: label}}, labels that replace the form's. A value that the form does not have
    is added after the form's own answers, with a letter as its key while letters are free.
    """
    form_spec = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))[name]
    used = {choice["key"] for question in form_spec["questions"] for choice in question["choices"]}
    free = (letter for letter in ascii_lowercase if letter not in used | PAGE_KEYS)
    questions = tuple(
        Question(
            question["name"],
            question["text"],
            _choices(question["choices"], (label_overrides or {}).get(question["name"], {}), free),
        )
        for question in form_spec["questions"]
    )
    return Form(form_spec["title"], form_spec["sheet"], form_spec["blind"], questions, form_spec.get("outline", False))


def _choices(choice_specs: Sequence[Mapping], labels: Mapping[str, str], free: Iterator[str]) -> tuple[Choice, ...]:
    choices = [choice | {"label": labels.get(choice["value"], choice["label"])} for choice in choice_specs]
    new_values = [value for value in labels if value not in {choice["value"] for choice in choice_specs}]
    choices += [{"value": value, "label": labels[value], "key": next(free, "")} for value in new_values]
    return tuple(Choice(**choice) for choice in choices)
