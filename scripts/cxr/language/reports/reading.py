"""Reading a study's report: its sections without identifiers, the section to use, and its sentences."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cxr.base.faults import broken
from cxr.base.paths import RESOURCES
from cxr.base.regular_files import open_regular
from cxr.language.reports import layouts, sections
from cxr.language.reports.decoding import NoText, cleaned, decode
from cxr.language.reports.privacy.scrubbing import add_counts, scrub
from cxr.language.reports.sentences import split

RESOURCE_FILES = ("sections.yaml", "reading/headings.yaml")
READERS = ("mimic", "tolerant")
COLUMNS = ("findings", "impression")
CORRECTED = "a heading that the official table names wrongly is corrected"
_BYTES_A_CHARACTER = 64
"""Largest number of bytes per allowed character of a file: RTF and HTML need many."""


class How(Protocol):
    """Options of all stages that read reports: the reader, its corrections, the longest report, and whether
    identifiers are removed."""

    scrub: bool
    sections: str
    section_overrides: bool
    max_characters: int


@dataclass(frozen=True)
class Section:
    """The section to use: name, text, [start, end) of its sentences, and the other section (name, text).

    ``removed``: how many identifiers of each kind the report had. ``corrected``: a heading is read otherwise than the
    official table says, whose mistake is known.
    """

    name: str
    text: str
    spans: list[tuple[int, int]]
    beside: tuple[str, str] | None
    removed: Mapping[str, int] = field(default_factory=dict)
    corrected: bool = False

    @property
    def sentences(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]


class _Unusable(Exception):
    """A report that cannot be used: (reason, detail)."""


def read(row: dict, how: How) -> Section | tuple[str, str]:
    """Return the section to use of a study's row, or (reason, detail) if it has none."""
    removed: dict[str, int] = {}
    try:
        found, corrected = _sections_of(row, how, removed)
    except _Unusable as unusable:
        reason, detail = unusable.args
        return reason, detail
    chosen = sections.choose(found)
    if chosen is None and removed:
        return "no_report", "nothing is left of its sections without signatures and identifiers"
    if chosen is None:
        reason = "no text in " + ", ".join(sections.SECTION_NAMES)
        return "empty_report", f"{reason}; {CORRECTED}" if corrected else reason
    name, text = chosen
    return Section(name, text, split(text), sections.other(found, name), removed, corrected)


def row_of(images: Sequence[dict]) -> dict:
    """Return a study's row with the report: the first with a text or a file, else the first with a missing file.

    A manifest may name the report in only one row of the study.
    """
    told = (row for row in images if row.get("report_path") or any((row.get(name) or "").strip() for name in COLUMNS))
    missing = (row for row in images if row.get("report_missing"))
    return next(told, None) or next(missing, None) or images[0]


def report_file(row: dict) -> str | None:
    """Return the file that holds the report of a study's row; None if there is none, or the row holds the text."""
    return None if any((row.get(name) or "").strip() for name in COLUMNS) else row.get("report_path")


def _sections_of(row: dict, how: How, removed: dict[str, int]) -> tuple[dict[str, str], bool]:
    """Return the sections of a study from its columns or its file, and whether a heading was corrected.

    Counts what was ``removed``. Raises _Unusable if it has neither.
    """

    def scrubbed(text: str) -> str:
        if not how.scrub:
            return text
        result = scrub(text, row["subject_id"])
        removed.update(add_counts(removed, result.removed))
        return result.text

    columns = {name: row.get(name) or "" for name in COLUMNS}
    if any(text.strip() for text in columns.values()):
        _check_length(sum(map(len, columns.values())), how)
        if how.sections == "mimic":
            return {name: scrubbed(text.strip()) for name, text in columns.items() if text}, False
        each = [_tolerant(scrubbed(cleaned(text)), name) for name, text in columns.items() if text.strip()]
        return _merged(each), False
    if path := report_file(row):
        text = _text(Path(path), how)
        if how.sections == "mimic":  # its corrections count characters of the original text
            found, corrected = _official(text, row["study_id"], how)
            return {name: scrubbed(part) for name, part in found.items()}, corrected
        return _tolerant(scrubbed(cleaned(text))), False
    if row.get("report_missing"):
        raise _Unusable("missing_report", "the file that the cohort names for it does not exist")
    if any(row.get(name) is not None for name in COLUMNS):
        return {}, False
    raise _Unusable("no_report", "")


def _official(text: str, study_id: str, how: How) -> tuple[dict[str, str], bool]:
    rules = sections.load_rules(RESOURCES / RESOURCE_FILES[0])
    by_hand = sections.override(text, study_id, rules) if how.section_overrides else None
    if by_hand is not None:
        return by_hand, False
    found = sections.named(sections.split(text, rules, corrected=how.section_overrides))
    return found, how.section_overrides and sections.needs_correction(text, rules)


def _tolerant(text: str, column: str = "") -> dict[str, str]:
    return layouts.sections_of(text, layouts.read(str(RESOURCES / RESOURCE_FILES[1])), column)


def _merged(found: list[dict[str, str]]) -> dict[str, str]:
    """Join the sections of two columns; texts with the same name are concatenated."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: "\n\n".join(dict.fromkeys(one[name] for one in found if one.get(name))) for name in names}


def _text(path: Path, how: How) -> str:
    """Return the text of a report file. Raises _Unusable for a missing, unreadable or overlong one."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > how.max_characters * _BYTES_A_CHARACTER:
                raise _Unusable("too_long", f"a file of {size} bytes; reports.max_characters is {how.max_characters}")
            data = file.read()
        text = decode(data)
    except NoText as no_text:
        raise _Unusable("unreadable_report", str(no_text)) from None
    except FileNotFoundError:
        raise _Unusable("missing_report", "the file has gone since the cohort was read") from None
    except (OSError, ValueError) as error:
        if broken(error):
            raise
        why = getattr(error, "strerror", None) or "its name cannot be a path"
        raise _Unusable("unreadable_report", f"the file cannot be opened: {why}") from None
    _check_length(len(text), how)
    return text


def _check_length(characters: int, how: How) -> None:
    if characters > how.max_characters:
        raise _Unusable("too_long", f"{characters} characters; reports.max_characters is {how.max_characters}")
