"""Validate settings with pydantic, and read settings files a second time to find what YAML readers lose.

``cxr.base.settings`` declares limits and checks without pydantic, and this module passes them to it. YAML readers
silently keep the last of two equal keys, and turn ``version: 1.10`` into a number and ``date: 2026-01-01`` into a date.
Snakemake passes on only the values, so :func:`written` reads the files again.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
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
"""Name of the method that pydantic calls on a class to learn how its values are validated."""
for _class, _attribute, _value in (
    (Limits, SCHEMA, _limits_schema),
    (Check, SCHEMA, _check_schema),
    (Section, SCHEMA, classmethod(_section_schema)),
    (Section, "__pydantic_config__", {"extra": "forbid"}),
):
    setattr(_class, _attribute, _value)


def parse_section(kind: type[T], values: dict) -> T:
    """Return a section of the class ``kind`` from values as read from YAML. Raises pydantic's ValidationError."""
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
    """Return a value in the spelling that its type declares: "PA" for "pa", "ms_cxr" for "MS-CXR".
    ``kind``: a type annotation that is a Literal, or a list, dict or union of Literals. Values of other types stay."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        spellings = {_folded(word): word for word in inner if isinstance(word, str)}
        return spellings.get(_folded(value), value) if isinstance(value, str) else value
    if isinstance(value, list) and origin in (list, tuple) and inner:
        return [_spelled(inner[0], part) for part in value]
    if isinstance(value, dict) and origin is dict:
        # two spellings of one key stay two keys, which are refused later
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
    """Yield the classes of sections in a type annotation, directly or inside a dict, list or union."""
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for part in get_args(kind):
        yield from sections_of(part)


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEMPLATE = "__use_yte__"
"""Key that marks a file as a template for Snakemake. The text of a template differs from its values."""


class Twice(ValueError):
    """Error for a file that contains a key twice. The message is one sentence."""


def written(paths: Iterable[str | Path]) -> dict:
    """Return the settings of YAML or JSON files with each scalar as the text in the file. Later files take precedence.
    A file that is not YAML is skipped, because Snakemake reports it. Raises Twice for a repeated key."""
    settings: dict = {}
    for path in paths:
        try:
            node = yaml.compose(Path(path).read_text(encoding="utf-8-sig"), Loader=LOADER)
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if isinstance(node, yaml.MappingNode) and TEMPLATE not in {name.value for name, _ in node.value}:
            settings = over(settings, _plain(node, str(path), ()))
    return settings


def over(below: dict, above: dict) -> dict:
    """Return the merged settings: values of ``above`` replace those of ``below`` key by key, also inside sections."""
    merged = below | above
    sections = [name for name in above if isinstance(below.get(name), dict) and isinstance(above[name], dict)]
    return merged | {name: over(below[name], above[name]) for name in sections}


def _plain(node: yaml.Node, path: str, where: tuple[str, ...]) -> object:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, path, where) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    lines: dict[str, int] = {}
    mapping = {}
    for name, value in node.value:
        key, line = str(name.value), name.start_mark.line + 1
        if key in lines and key != "<<":
            full = ".".join((*where, key))
            raise Twice(
                f"{full} stands twice in {path}, on lines {lines[key]} and {line}, and only the last would count: "
                "merge them"
            )
        lines[key] = line
        mapping[key] = _plain(value, path, (*where, key))
    return mapping


def at(node: object, where: Iterable[object]) -> str | None:
    """Return the text of the setting at the keys ``where``, or None. ``node``: a result of :func:`written`."""
    for part in where:
        if isinstance(node, dict):
            node = node.get(str(part))
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return None
    return node if isinstance(node, str) else None
