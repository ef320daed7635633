"""Labelled reports and sentences as JSON Lines: the models of a line, and one-sentence errors for invalid lines.

A missing key of ``Expected`` is not scored, so the models record the keys of a line (pydantic's ``model_fields_set``).
"""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cxr.base.errors import UserError
from cxr.base.vocabulary import LESIONS

Lesion = Literal[LESIONS]
Line = TypeVar("Line", bound="_Line")


class _Line(BaseModel):
    """Base class of a line. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Gold(_Line):
    """A labelled finding. ``side_implied``: people did not state the side, so it is not scored."""

    lesion: Lesion | None
    term: str | None = None
    sides: tuple[Literal["left", "right"], ...] = ()
    zone_family: tuple[Literal["lower", "mid", "upper"], ...] = ()
    side_implied: bool = False


class Report(_Line):
    """A report with the types and places of its affirmed lesions. Reports of one ``text_group`` have the same text."""

    lesions: tuple[Lesion, ...]
    findings: str | None = None
    impression: str | None = None
    gold: tuple[Gold, ...] = ()
    text_group: str | int | None = None
    uid: str | int | None = None

    @model_validator(mode="after")
    def _has_text(self) -> "Report":
        if self.findings is None and self.impression is None:
            raise PydanticCustomError("no_text", "findings and impression are both missing")
        return self

    @property
    def text(self) -> str:
        """The scored text: findings, newline, impression."""
        return f"{self.findings or ''}\n{self.impression or ''}"

    @property
    def group(self) -> str:
        """Name of the report's group. Reports of one group stay in one fold and are resampled together."""
        return self.text if self.text_group is None else str(self.text_group)


class Expected(_Line):
    """One tuple of a correct reading of a sentence. Keys are named as in the fixtures, see :func:`same_tuple`."""

    entity: str
    entity_alts: tuple[str, ...] = ()
    lesion: Lesion | None = None
    sentence_index: int = 1
    presence: str = "positive"
    certainty: str | None = None
    certainty_free: bool = False
    labels15: frozenset[str] = frozenset()
    labels15_alt: frozenset[str] = frozenset()
    category17: str | None = None
    predicted_lesion_type: str | tuple[str, ...] | None = None


class Case(_Line):
    """A sentence with its expected tuples; ``alternatives`` are other correct readings of the whole sentence."""

    report: str
    expected: tuple[Expected, ...]
    alternatives: tuple[tuple[Expected, ...], ...] = ()
    id: str | int | None = None
    note: str | None = None


class Told(_Line):
    """A finding of a clinical text. ``locations`` None: not scored; ``inferred_from``: the finding that it explains."""

    lesion: Lesion
    presence: Literal["positive", "negative"]
    certainty: Literal["definitive", "tentative"]
    certainty_free: bool = False
    locations: tuple[str, ...] | None = None
    locations_alt: tuple[tuple[str, ...], ...] = ()
    inferred_from: str | None = None


class Clinical(_Line):
    """A text in hospital style with its ground truth; :mod:`reports_clinical` describes how it is scored."""

    id: str
    category: str
    text: str
    language: str
    findings: tuple[Told, ...]
    affirmed_or_possible: tuple[Lesion, ...]
    denied: tuple[Lesion, ...] = ()
    unscored: tuple[Lesion, ...] = ()
    note: str | None = None

    @field_validator("unscored", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Convert each item, a lesion type or {"lesion": type, ...}, to the type."""
        return [item["lesion"] if isinstance(item, dict) else item for item in value or ()]


def read(path: str | Path, kind: type[Line]) -> list[Line]:
    """Read a JSON Lines file; blank lines are skipped.

    Raises UserError if the file is unreadable or empty, or if a line is invalid. The message is one sentence with file,
    line and fault, and never quotes a report.
    """
    lines = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    lines.append(_line(text.strip(), kind, f"{path}, line {number}"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text.") from None
    if not lines:
        raise UserError(f"{path} holds no line.")
    return lines


def _line(text: str, kind: type[Line], where: str) -> Line:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
    key = ".".join(map(str, first["loc"]))
    said = f"{key}: {first['msg']}" if key else first["msg"]
    problem = f"{key} is missing" if first["type"] == "missing" else said
    raise UserError(f"{where}: {problem.replace(' at line 1 column', ' at column')}.")
