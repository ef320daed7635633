"""Validate sections with pydantic: it learns here what ``cxr.base.settings`` declares without it."""

import re
from collections.abc import Iterator
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from cxr.base.settings import Check, Limits, Section, type_hints

T = TypeVar("T", bound=Section)


def _limits_schema(limits: Limits, source: Any, handler: Any) -> Any:
    return handler.generate_schema(Annotated[source, Field(**limits.bounds)])


def _check_schema(check: Check, source: Any, handler: Any) -> Any:
    kind = BeforeValidator if check.before else AfterValidator
    return handler.generate_schema(Annotated[source, kind(check.function)])


def _section_schema(section: type[Section], source: Any, handler: Any) -> Any:
    spelling = BeforeValidator(partial(_with_usual_spelling, section))
    return spelling.__get_pydantic_core_schema__(source, handler)


SCHEMA = "__get_pydantic_core_schema__"
"""Method by which pydantic asks a class how its values are validated."""
for _class, _attribute, _value in (
    (Limits, SCHEMA, _limits_schema),
    (Check, SCHEMA, _check_schema),
    (Section, SCHEMA, classmethod(_section_schema)),
    (Section, "__pydantic_config__", {"extra": "forbid"}),
):
    setattr(_class, _attribute, _value)


def parse_section(kind: type[T], values: dict) -> T:
    """Return a section of its values as YAML gives them. Raises pydantic's ValidationError."""
    return _type_adapter(kind).validate_python(values)


@cache  # building one takes a second
def _type_adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def _with_usual_spelling(section: type[Section], values: object) -> object:
    if not isinstance(values, dict):
        return values
    kinds = type_hints(section, include_extras=True)
    return {name: _spelled(kinds.get(name), value) for name, value in values.items()}


def _spelled(kind: object, value: object) -> object:
    """Return a value in the spelling of its type: "PA" for "pa", "ms_cxr" for "MS-CXR".

    ``kind``: an annotation that is a Literal, or a list, dict or union of one.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        spellings = {_folded(word): word for word in inner if isinstance(word, str)}
        return spellings.get(_folded(value), value) if isinstance(value, str) else value
    if isinstance(value, list) and origin in (list, tuple) and inner:
        return [_spelled(inner[0], part) for part in value]
    if isinstance(value, dict) and origin is dict:
        # two spellings of one key stay two keys, and are refused
        names = {name: _spelled(inner[0], name) for name in value}
        names = names if len(set(names.values())) == len(names) else {name: name for name in value}
        return {names[name]: _spelled(inner[1], part) for name, part in value.items()}
    if origin in (Union, UnionType, Annotated):
        for part in inner[:1] if origin is Annotated else inner:
            if (spelled := _spelled(part, value)) != value:
                return spelled
    return value


def _folded(word: str) -> str:
    return re.sub(r"[\s_.-]+", "", word.casefold())


def sections_of(kind: object) -> Iterator[type[Section]]:
    """Yield the sections that an annotation holds, directly or inside a dict, list or union."""
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for part in get_args(kind):
        yield from sections_of(part)
