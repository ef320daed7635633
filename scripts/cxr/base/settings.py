"""Declaration of settings. The settings of a stage are a frozen dataclass, and each field documents one setting.

A job receives an instance of the class. ``cxr.workflow.settings`` uses the same class to validate a configuration and
to write config.yaml and the reference. This module needs only the standard library.
"""

import dataclasses
import inspect
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, dataclass_transform
from urllib.parse import urlsplit

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
"""Sources of a default value: stated in the paper, taken from its authors' code, or chosen by this project."""
T = TypeVar("T", bound="Section")
type_hints: Callable[..., dict[str, Any]] = cache(typing.get_type_hints)


class Limits:
    """Limits of a setting's value: ge (≥), gt (>), le (≤), lt (<), multiple_of, min_length, max_length, pattern."""

    def __init__(self, **bounds: Any):
        self.bounds = bounds


class Check:
    """Validator, run after the type check (or ``before`` it). ``function`` returns the value or raises ValueError."""

    def __init__(self, function: Callable, *, before: bool = False):
        self.function, self.before = function, before


FEWEST_REPLICATES = 100  # minimum number of bootstrap replicates for a meaningful interval


def _none_or_enough(value: int) -> int:
    if 0 < value < FEWEST_REPLICATES:
        raise ValueError(f"{value} replicates are too few: give {FEWEST_REPLICATES} or more, or 0 for no interval")
    return value


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is not a number
        is_address = False
    if value and not is_address:
        raise ValueError(f"{value!r} is not the address of a server: give one such as http://localhost:8000/v1")
    return value


Share = Annotated[float, Limits(ge=0, le=1)]
Logic = Literal["strict", "paper"]
Percent = Annotated[float, Limits(ge=0, le=100)]
Replicates = Annotated[int, Limits(ge=0, le=100_000), Check(_none_or_enough)]
Address = Annotated[str, Check(_address)]
Name = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]  # name of a file or folder of results
Expert = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]  # an expert's name, used in file names


def refuse_equal_names(label: str, names: Iterable[str]) -> None:
    """Raise ValueError if two names differ only in case, as some disks ignore case. ``label``: what they name."""
    names = list(names)
    counts = Counter(map(str.casefold, names))
    if alike := [name for name in names if counts[name.casefold()] > 1]:
        raise ValueError(f"{label} {alike[0]!r} and {alike[1]!r} differ only in case: rename one")


class Key(NamedTuple):
    """Documentation of one setting: a sentence, the source of its default, its unit, and its limits."""

    description: str
    source: str
    unit: str
    limits: Limits


def key(default: Any, description: str, *, source: str = OURS, unit: str = "", **bounds: Any) -> Any:
    """Return the dataclass field that declares one setting of a :class:`Section`.

    ``default`` is a value, or a callable that returns one (for a list or a section). ``description`` is a sentence
    about the effect of the setting. ``source`` is PAPER, AUTHORS or OURS. ``bounds`` are arguments of :class:`Limits`.
    """
    keywords = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**keywords, metadata={"key": Key(description, source, unit, Limits(**bounds))})


def redefine(section: type["Section"], name: str, default: Any, source: str = OURS) -> Any:
    """Return the field of the setting ``name`` of ``section``, with a new default and the source of this default."""
    keywords = {"default_factory": default} if callable(default) else {"default": default}
    return dataclasses.field(**keywords, metadata={"key": section.declared()[name][1]._replace(source=source)})


def constraint(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorate a section's method that raises ValueError for contradictory values. New instances call the method."""
    method._is_constraint = True  # type: ignore[attr-defined]
    return method


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """Settings of a stage, an engine, or a part of either. Every subclass is a frozen, keyword-only dataclass.

    Arguments of a class statement change defaults of the base class: ``class Large(Small, batch=64)``. Defaults that
    come from a paper or its authors' code are passed as dicts, ``paper={"batch": 64}`` or ``authors={…}``.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]
    _constraints: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, paper: dict | None = None, authors: dict | None = None, **ours: Any) -> None:
        for name, annotation in list(inspect.get_annotations(cls).items()):
            declared = cls.__dict__.get(name)
            if isinstance(declared, dataclasses.Field) and declared.metadata["key"].limits.bounds:
                cls.__annotations__[name] = Annotated[annotation, declared.metadata["key"].limits]
        for source, defaults in ((PAPER, paper or {}), (AUTHORS, authors or {}), (OURS, ours)):
            for name, default in defaults.items():
                kind = cls.__mro__[1].declared()[name][0]  # type: ignore[attr-defined]
                cls.__annotations__ = inspect.get_annotations(cls) | {name: kind}
                setattr(cls, name, redefine(cls.__mro__[1], name, default, source))
        names = [name for name, value in cls.__dict__.items() if getattr(value, "_is_constraint", False)]
        inherited = [name for base in cls.__bases__ for name in getattr(base, "_constraints", ()) if name not in names]
        cls._constraints = (*dict.fromkeys(inherited), *names)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for name in self._constraints:
            getattr(self, name)()

    @classmethod
    def declared(cls) -> dict[str, tuple[Any, Key]]:
        """Return {name of a setting: (type, documentation)}."""
        kinds = type_hints(cls, include_extras=True)
        return {field.name: (kinds[field.name], field.metadata["key"]) for field in dataclasses.fields(cls)}

    @classmethod
    def from_dict(cls: type[T], values: dict) -> T:
        """Return an instance from a dict in the form of :meth:`as_dict`. Missing fields keep their defaults."""
        kinds = type_hints(cls)
        return cls(**{name: _parsed(kinds[name], value) for name, value in values.items()})

    def as_dict(self, *, without: Iterable[str] = ()) -> dict:
        """Return the values as JSON types (dicts, lists, scalars), except the fields named in ``without``."""
        excluded = set(without)
        names = [field.name for field in dataclasses.fields(self) if field.name not in excluded]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, Section):
        return value.as_dict()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _parsed(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Section):
        return kind.from_dict(value)
    if isinstance(value, dict) and origin is dict:
        return {name: _parsed(inner[1], part) for name, part in value.items()}
    if isinstance(value, list) and origin is tuple:
        return tuple(value)
    if isinstance(value, list) and origin is list:
        return [_parsed(inner[0], part) for part in value]
    if origin in (Union, UnionType):
        return next((parsed for part in inner if (parsed := _parsed(part, value)) != value), value)
    return value
