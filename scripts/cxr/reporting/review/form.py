"""The form of a page: the questions about every item, with their answers and keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import ascii_lowercase

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("review/forms.yaml",)
PAGE_KEYS = frozenset("ujmocns")
"""Keys that the page itself uses."""


@dataclass(frozen=True)
class Choice:
    """One answer: its value in the sheet; its label, key and mark on the page; ``id`` of its button, or ""."""

    value: str
    label: str
    key: str
    id: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Question:
    """A question about each item. ``name``: its column in the sheet; ``text``: the heading of its answers."""

    name: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The values of its answers in the sheet."""
        return tuple(choice.value for choice in self.choices)


@dataclass(frozen=True)
class Form:
    """The heading of a page and its questions.

    ``sheet``: prefix of a saved sheet's name; ``blind``: nothing may reveal an item's source; ``outline``: masks are
    initially shown as outlines.
    """

    title: str
    sheet: str
    blind: bool
    questions: tuple[Question, ...]
    outline: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sheet."""
        return ("item", *(question.name for question in self.questions), "note", "seconds", "page")

    def to_data(self) -> dict:
        """Return the form as data for the page."""
        form_data = {"sheet": self.sheet, "questions": [asdict(question) for question in self.questions]}
        return form_data | ({"outline": True} if self.outline else {})


def read_form(name: str, label_overrides: Mapping[str, Mapping[str, str]] | None = None) -> Form:
    """Read a form of resources/review/forms.yaml.

    ``label_overrides``: {question: {value: label}}, labels that replace the form's. A value that the form lacks is
    added after the form's answers, with an unused letter as its key if there is one.
    """
    form_spec = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))[name]
    used_keys = {choice["key"] for question in form_spec["questions"] for choice in question["choices"]}
    free_keys = (letter for letter in ascii_lowercase if letter not in used_keys | PAGE_KEYS)
    questions = tuple(
        Question(
            question["name"],
            question["text"],
            _merge_choices(question["choices"], (label_overrides or {}).get(question["name"], {}), free_keys),
        )
        for question in form_spec["questions"]
    )
    return Form(form_spec["title"], form_spec["sheet"], form_spec["blind"], questions, form_spec.get("outline", False))


def _merge_choices(
    choice_specs: Sequence[Mapping], labels: Mapping[str, str], free: Iterator[str]
) -> tuple[Choice, ...]:
    choices = [choice | {"label": labels.get(choice["value"], choice["label"])} for choice in choice_specs]
    new_values = [value for value in labels if value not in {choice["value"] for choice in choice_specs}]
    choices += [{"value": value, "label": labels[value], "key": next(free, "")} for value in new_values]
    return tuple(Choice(**choice) for choice in choices)
