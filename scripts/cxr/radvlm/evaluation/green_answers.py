"""Counts in an answer of GREEN's form: headings in brackets, errors by kind (a) to (f), a number of matched findings.

The form is that of GREEN's published code: ``[Clinically Significant Errors]:``, below it lines such as
``(b) Kind of the error: 2. First error; second error``, then ``[Clinically Insignificant Errors]:`` and
``[Matched Findings]:`` with ``3. First finding; …``. A part may be empty, or begin with "No" or "None": that is 0. Some
models number the kinds (1) to (6). That code reads what it cannot find as 0; here it is an error, so that the model is
asked again.
"""

import re
from dataclasses import dataclass

SIGNIFICANT, INSIGNIFICANT, MATCHED = (
    "clinically significant errors", "clinically insignificant errors", "matched findings",
)  # fmt: skip
KINDS = "abcdef"
_HEADING = re.compile(r"^[ \t]*\**\[([A-Za-z][A-Za-z ]{0,60})\]\**[ \t]*:?\**", re.MULTILINE)
_KIND = re.compile(r"\(([A-Za-z]|\d)\)(?=[^:\n]{0,160}:)")
_COUNT = re.compile(r"[^:\n]*:[\s*]*(?:(\d{1,3})(?![\d.]*\d)|(none|no)\b)", re.IGNORECASE | re.ASCII)
_NOTHING = re.compile(r"(?:none|no)\b", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,3})(?:\.(?!\d)|\s*\Z)", re.ASCII)
_LISTED = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)


@dataclass(frozen=True)
class Counts:
    """matched: findings of both reports; errors: clinically significant ones."""

    matched: int
    errors: int


def counts(text: str) -> Counts:
    """Return the counts of an answer. Raises ValueError, which quotes no word of it, for another form."""
    parts = _parts(text)
    for name in (SIGNIFICANT, MATCHED):
        if name not in parts:
            raise ValueError(f"no part '{name}'")
    return Counts(_matched(parts[MATCHED]), _errors(parts[SIGNIFICANT]))


def problem_of(text: object) -> str | None:
    """Return why an answer has no counts, None if it has them."""
    try:
        counts(str(text))
    except ValueError as error:
        return str(error)
    return None


def _parts(text: str) -> dict[str, str]:
    part_by_heading: dict[str, str] = {}
    marks = list(_HEADING.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=False):  # without a heading there is an end alone
        name = " ".join(mark.group(1).lower().split())
        if name in part_by_heading:
            raise ValueError("a part is there twice")
        part_by_heading[name] = text[mark.end() : end].strip()
    return part_by_heading


def _errors(part: str) -> int:
    if not part or _NOTHING.match(part):
        return 0
    marks = list(_KIND.finditer(part))
    if not marks:
        raise ValueError("significant errors without a kind")
    count_by_kind: dict[str, int] = {}
    for mark in marks:
        name = mark.group(1).lower()
        kind = KINDS[int(name) - 1] if name in "123456" else name
        if kind not in KINDS or kind in count_by_kind:
            raise ValueError("a kind of errors is unknown or there twice")
        count = _COUNT.match(part, mark.end())
        if not count:
            raise ValueError("a kind of errors without a count")
        count_by_kind[kind] = int(count.group(1) or 0)
    return sum(count_by_kind.values())


def _matched(part: str) -> int:
    if not part or _NOTHING.match(part):
        return 0
    number = _NUMBER.match(part)
    if not number:
        raise ValueError("matched findings without a count")
    if len(_LISTED.findall(part)) > 1:
        raise ValueError("matched findings are a list without a count")
    return int(number.group(1))
