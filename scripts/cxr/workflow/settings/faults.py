"""Report a wrong setting in one sentence that names the key, the value and the remedy."""

import difflib
from typing import get_type_hints

from pydantic import ValidationError

from cxr.base.settings import Section
from cxr.workflow.settings.validation import sections_of

_REMEDIES: dict[str, str] = {
    "bool": "give true or false",
    "int": "give a whole number",
    "float": "give a number",
    "finite_number": "give a finite number",
    "string": "give a text",
    "list": "give a list in brackets, even of one entry",
    "tuple": "give a list in brackets",
    "dict": "write its keys below it, one per line",
    "dataclass_type": "write its keys below it, one per line",
    "literal_error": "choose {expected}",
    "greater_than": "give a number greater than {gt}",
    "greater_than_equal": "give a number greater than or equal to {ge}",
    "less_than": "give a number less than {lt}",
    "less_than_equal": "give a number less than or equal to {le}",
    "multiple_of": "give a multiple of {multiple_of}",
    "too_short": "give {min_length} or more entries",
    "too_long": "give {max_length} or fewer entries",
    "string_too_short": "give a text of at least {min_length} characters",
    "string_pattern_mismatch": "give a text that matches the pattern {pattern}",
}
"""{type of a pydantic error, or the first word of the type: remedy}."""
NAMES = r"^[A-Za-z0-9]"
"""Beginning of each regular expression for names that become files or folders."""


def sentence(error: ValidationError, model: type[Section], defaults: Section) -> str:
    """Return one sentence about the first fault in settings of the class ``model``. ``defaults``: default instance."""
    fault = error.errors()[0]
    where = place_of(fault)
    name = _place(where) or "the configuration"
    if fault["type"] == "unexpected_keyword_argument":
        keys = _keys_beside(model, where)
        near = difflib.get_close_matches(str(where[-1]), keys, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        return f"{name} is not a setting{meant}: remove it or choose one of {', '.join(keys)}."
    if fault["input"] is None:
        return f"{name} is empty (null): give a value, or leave the key out."
    if fault["type"] == "value_error":
        return f"{name}: {fault['msg'].removeprefix('Value error, ')}."
    if "[key]" in fault["loc"]:
        remedy = "put it in quotes" if fault["type"] == "string_type" else _remedy(fault)
        return f"{_place(where[:-1])} has the key {where[-1]!r}, which is not a valid name: {remedy}."
    remainder_note = f" (and {error.error_count() - 1} more faults)" if error.error_count() > 1 else ""
    usual = _default(defaults, where)
    default_note = f"; the default is {_written(usual)}" if usual is not None else ""
    if fault["type"] == "missing":
        number = int(where[-1]) + 1
        return f"{_place(where[:-1])} has too few entries: entry {number} is missing{default_note}{remainder_note}."
    return f"{name} is {fault['input']!r}, which is wrong: {_remedy(fault)}{default_note}{remainder_note}."


def place_of(fault: dict) -> list[str | int]:
    """Return the keys that lead to a fault, without the types ("dict[str,str]") that pydantic puts between them."""
    return [part for part in fault["loc"] if isinstance(part, int) or not set("[(") & set(part)]


def switches(raw: object, parsed: object, where: tuple = ()) -> list[tuple[tuple, bool]]:
    """Return (keys that lead to a setting, its value) for each number that the user gave as true or false.
    ``raw``: the settings of the user. ``parsed``: the validated settings. ``where``: keys that lead to both."""
    if isinstance(raw, dict) and isinstance(parsed, dict):
        pairs = [(name, raw[name], parsed[name]) for name in raw if name in parsed]
    elif isinstance(raw, list | tuple) and isinstance(parsed, list | tuple) and len(raw) == len(parsed):
        pairs = [(number, *values) for number, values in enumerate(zip(raw, parsed, strict=True))]
    else:
        wrong = isinstance(raw, bool) and isinstance(parsed, int | float) and not isinstance(parsed, bool)
        return [(where, raw)] if wrong else []
    return [fault for name, *values in pairs for fault in switches(*values, (*where, name))]


def switch_sentence(where: tuple, value: bool) -> str:
    """Return the sentence for a number that was given as true or false."""
    return f"{_place(list(where))} is {_written(value)}, which is wrong: give a number."


def _remedy(fault: dict) -> str:
    kind = fault["type"]
    template = _REMEDIES.get(kind) or _REMEDIES.get(kind.split("_")[0])
    if template is None:
        return fault["msg"][0].lower() + fault["msg"][1:]
    values = {name: f"{value:g}" if isinstance(value, float) else value for name, value in fault.get("ctx", {}).items()}
    remedy = template.format(**values)
    if kind == "string_pattern_mismatch" and fault["ctx"]["pattern"].startswith(NAMES):
        remedy = f"use letters, digits and - _ . alone, a letter or digit first (pattern {fault['ctx']['pattern']})"
    return remedy


def _place(where: list) -> str:
    """Return the keys ``where`` as one text, such as "a.b, entry 2,". Entries of lists are counted from 1."""
    text = ""
    for part in where:
        text += f", entry {part + 1}" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return f"{text}," if ", entry" in text else text


def _keys_beside(section: type[Section], where: list) -> list[str]:
    """Return the keys of the section that contains the key ``where``. ``section``: class of all settings."""
    for part in where[:-1]:
        inner = next(sections_of(get_type_hints(section).get(str(part))), None)
        section = inner or section
    return list(section.declared())


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(defaults: Section, where: list) -> object:
    """Return the default of the key ``where``, or of the list that contains it. Return None for an empty default."""
    value: object = defaults.as_dict()
    for part in where:
        if isinstance(part, int) or not isinstance(value, dict):
            break
        value = value.get(part)
    return None if isinstance(value, dict) or value in (None, "", []) else value
