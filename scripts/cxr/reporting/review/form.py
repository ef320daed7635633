"""The form of a page: the questions that an expert answers about every item, their answers and keys."""

from dataclasses import asdict, dataclass

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("review/forms.yaml",)


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
        told = {"sheet": self.sheet, "questions": [asdict(question) for question in self.questions]}
        return told | ({"outline": True} if self.outline else {})


def read_form(name: str) -> Form:
    """Return a form of resources/review/forms.yaml."""
    told = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))[name]
    questions = tuple(
        Question(each["name"], each["text"], tuple(Choice(**choice) for choice in each["choices"]))
        for each in told["questions"]
    )
    return Form(told["title"], told["sheet"], told["blind"], questions, told.get("outline", False))
