"""What one setting is: a value with a description, a unit where it has one, a range and a source."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Logic = Literal["strict", "paper"]
FEWEST_REPLICATES = 100
"""An interval from fewer says little."""


def _none_or_enough(value: int) -> int:
    if 0 < value < FEWEST_REPLICATES:
        raise ValueError(f"{value} replicates give no interval: give {FEWEST_REPLICATES} or more, or 0 for none")
    return value


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        whole = False
    if value and not whole:
        raise ValueError(f"{value!r} is no address of a server: give one such as http://localhost:8000/v1")
    return value


Replicates = Annotated[int, Field(ge=0, le=100_000), AfterValidator(_none_or_enough)]
Address = Annotated[str, AfterValidator(_address)]


def one_case(what: str, names: Iterable[str]) -> None:
    """Raise ValueError for names that differ in case alone: on some file systems their folders are one."""
    names = list(names)
    counted = Counter(map(str.casefold, names))
    if alike := [name for name in names if counted[name.casefold()] > 1]:
        raise ValueError(f"{what} {alike[0]!r} and {alike[1]!r} differ in case alone: rename one")


def key(default: object, description: str, *, source: str = OURS, unit: str | None = None, **bounds: object):
    """Declare one setting. A callable default makes a fresh value (lists, sections)."""
    extra = {"source": source} | ({"unit": unit} if unit else {})
    how = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**how, description=description, json_schema_extra=extra, **bounds)


class Section(BaseModel):
    """A part of the settings: refuses unknown keys, never changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)
