"""Declaring one setting: a value with a description, a source, and where it has them a unit and a range."""

import re
from collections import Counter
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Logic = Literal["strict", "paper"]
FEWEST_REPLICATES = 100
"""Smallest number of replicates from which an interval is meaningful."""


def _none_or_enough(value: int) -> int:
    if 0 < value < FEWEST_REPLICATES:
        raise ValueError(f"{value} replicates give no interval: give {FEWEST_REPLICATES} or more, or 0 for none")
    return value


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        is_address = False
    if value and not is_address:
        raise ValueError(f"{value!r} is not the address of a server: give one such as http://localhost:8000/v1")
    return value


Replicates = Annotated[int, Field(ge=0, le=100_000), AfterValidator(_none_or_enough)]
Address = Annotated[str, AfterValidator(_address)]


def one_case(label: str, names: Iterable[str]) -> None:
    """Raise ValueError for names that differ only in case: on some file systems they are the same folder."""
    names = list(names)
    counts = Counter(map(str.casefold, names))
    if alike := [name for name in names if counts[name.casefold()] > 1]:
        raise ValueError(f"{label} {alike[0]!r} and {alike[1]!r} differ in case alone: rename one")


def key(default: object, description: str, *, source: str = OURS, unit: str | None = None, **bounds: object):
    """Declare one setting. A callable default makes a fresh value (lists, sections)."""
    extra = {"source": source} | ({"unit": unit} if unit else {})
    default_keyword = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**default_keyword, description=description, json_schema_extra=extra, **bounds)


def spelled(kind: object, value: object) -> object:
    """Return a value with the spelling of its type: "PA" for "pa", "ms_cxr" for "MS-CXR".

    ``kind``: an annotation that is a Literal, or a list or dict of one.
    """
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        spellings = {_folded(word): word for word in inner if isinstance(word, str)}
        return spellings.get(_folded(value), value) if isinstance(value, str) else value
    if isinstance(value, list) and get_origin(kind) in (list, tuple) and inner:
        return [spelled(inner[0], part) for part in value]
    if isinstance(value, dict) and get_origin(kind) is dict:
        # two spellings of one key stay two keys, and are refused
        names = {name: spelled(inner[0], name) for name in value}
        names = names if len(set(names.values())) == len(names) else {name: name for name in value}
        return {names[name]: spelled(inner[1], part) for name, part in value.items()}
    if get_origin(kind) in (Union, UnionType, Annotated):
        for part in inner[:1] if get_origin(kind) is Annotated else inner:
            if (new_value := spelled(part, value)) != value:
                return new_value
    return value


def _folded(word: str) -> str:
    return re.sub(r"[\s_.-]+", "", word.casefold())


class Section(BaseModel):
    """A section of the settings. It refuses unknown keys and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)

    @model_validator(mode="before")
    @classmethod
    def _words_in_any_case(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        kinds = {field.alias or name: field.annotation for name, field in cls.model_fields.items()}
        return {name: spelled(kinds.get(name), value) for name, value in values.items()}
