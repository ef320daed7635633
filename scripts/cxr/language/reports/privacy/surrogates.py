"""Invented names, numbers and dates (surrogates) that replace identifiers, and functions that read and write dates.

A surrogate has the form of the identifier. It depends on the subject, the kind of identifier and the number of earlier
identifiers of this kind. It never depends on the identifier, so neither can be computed from the other. Equal
identifiers in a report get equal surrogates, and the intervals between dates stay the same.
"""

import re
from dataclasses import dataclass, field
from datetime import date, timedelta

from cxr.base.seeds import stable_hash
from cxr.language.reports.privacy.rules import load_rules

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_GERMAN = ("januar", "februar", "märz", "april", "mai", "juni", "juli", "august", "september", "oktober", "november",
           "dezember")  # fmt: skip
_NAME = (
    r"(?P<month>jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|"
    r"aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_YEAR = r"(?:19|20)\d\d"
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch),?\s+"
_ORDINAL = r"(?:st|nd|rd|th|\.)?"
_FORMS = (
    rf"(?P<year>{_YEAR})(?P<s>[./-])(?P<m>\d{{1,2}})(?P=s)(?P<d>\d{{1,2}})(?!\d)",
    r"(?P<a>\d{1,2})(?P<s>[./-])(?P<b>\d{1,2})(?P=s)(?P<year>(?:19|20)?\d\d)(?![\d])(?!\.\d)",
    rf"(?P<d>\d{{1,2}}){_ORDINAL}(?:\s+of)?[ \t-]*{_NAME}(?:[ \t,-]*(?P<year>{_YEAR}|['’]\d\d))?(?!\d)",
    rf"{_NAME}[ \t]*(?P<d>\d{{1,2}}){_ORDINAL}(?![\d/.:]\d)(?:[ \t,]+(?P<year>{_YEAR}))?(?![\d])",
    rf"{_NAME}(?:[ \t,]|of)*(?P<year>{_YEAR}|['’]\d\d)(?!\d)",
    rf"(?P<m>0?[1-9]|1[0-2])/(?P<year>{_YEAR})(?!\d)",
)
_UNNAMED = [re.sub(r"\?P<\w+>", "?:", form).replace("(?P=s)", "[./-]") for form in _FORMS]
_DATE = re.compile("|".join(f"(?:{_WEEKDAY})?(?:{form})" for form in _UNNAMED), re.I)
_PATTERNS = tuple(re.compile(rf"(?:{_WEEKDAY})?{form}", re.I) for form in _FORMS)
_SHORT = re.compile(
    r"(?i:\b(?:on|of|from|since|dated|and|until|by|am|vom|seit|bis|to|study|exam|radiograph|film|,)\s+)"
    r"(?P<day>(?:0?[1-9]|1[0-2])/(?:[12]\d|3[01]|0?[1-9])(?![\d/])(?!\s*(?:of|inch|cm|mm|views?)\b)|\d{1,2}\.\d{1,2}\.(?!\d))"
)
_SHORT_FORM = re.compile(r"(?P<a>\d{1,2})(?P<s>[./])(?P<b>\d{1,2})\.?")
_YEAR_ALONE = re.compile(
    rf"(?i:\b(?:since|in|from|of|until|dated|before|after|seit|bis|year|early|late|mid)\s+)(?P<day>{_YEAR})\b(?!\s*(?:hours|hrs|h\b))"
)
_YEAR_FORM = re.compile(rf"(?P<year>{_YEAR})")
_DIGIT = re.compile(r"\d")
_MAY = re.compile(r"\bmay\b")
_LISTED = re.compile(r"\d{1,2}\.\s+(?:" + "|".join(month[:3] for month in _MONTHS if month not in _GERMAN) + ")", re.I)


@dataclass(frozen=True)
class Day:
    """A date, and which of its parts the text contains. ``day_first``: whether the day comes before the month."""

    value: date
    has_year: bool
    has_month: bool
    has_day: bool
    day_first: bool = False

    def at(self, target: date) -> date:
        """Return the date ``target``, but with this date's year, month or day if the text lacks this part. If the day
        is from ``target``, it is at most 28."""
        return date(
            target.year if self.has_year else self.value.year,
            target.month if self.has_month else self.value.month,
            min(target.day, 28) if self.has_day else self.value.day,
        )


def find_dates(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each date in a text. A time without a date does not count."""
    if not _DIGIT.search(text):
        return []
    spans = [match.span() for match in _DATE.finditer(text) if _is_date(match, text)]
    taken = [range(*span) for span in spans]
    for pattern in (_SHORT, _YEAR_ALONE):
        for match in pattern.finditer(text):
            if not any(match.start("day") in span for span in taken):
                spans.append(match.span("day"))
    return sorted(spans)


def _is_date(match: re.Match, text: str) -> bool:
    if (
        text[max(0, match.start() - 1) : match.start()].isalnum()
        or text[max(0, match.start() - 2) : match.start()][-1:] == "."
    ):
        return False
    if _MAY.search(match[0]):  # "may 2" in lower case is the verb
        return False
    if _LISTED.match(match[0]) and not match[0][-2:].isdigit():  # "2. May represent" is an item of a list
        return False
    return parse_date(match[0]) is not None


def _match_form(text: str) -> re.Match | None:
    forms = (*_PATTERNS, _SHORT_FORM, _YEAR_FORM)
    return next(filter(None, (pattern.fullmatch(text.strip()) for pattern in forms)), None)


def parse_date(text: str) -> Day | None:
    """Return the date that a text states, or None if it is not a valid date (the 40th, the 13th month)."""
    match = _match_form(text)
    if match is None:
        return None
    parts = match.groupdict()
    month, day, day_first = parts.get("m"), parts.get("d"), False
    if parts.get("month"):
        prefix = parts["month"].rstrip(".").lower()[:3]
        names = zip(_MONTHS, _GERMAN, strict=True)
        month = next(number for number, pair in enumerate(names, 1) if prefix in (pair[0][:3], pair[1][:3]))
    elif parts.get("a"):
        first, second = int(parts["a"]), int(parts["b"])
        day_first = first > 12 or (parts["s"] == "." and second <= 12)
        day, month = (first, second) if day_first else (second, first)
    year = int((parts.get("year") or "2000").lstrip("'’"))
    year += 0 if year > 99 else 1900 if year > 40 else 2000
    try:
        value = date(year, int(month) if month else 6, int(day) if day else 15)
    except ValueError:
        return None
    return Day(value, bool(parts.get("year")), bool(month), bool(day), day_first)


def write_date(text: str, form: Day, value: date) -> str:
    """Return the date ``value`` in the format of ``text``, without a weekday. ``form``: result of parse_date(text)."""
    match = _match_form(text)
    assert match is not None
    parts = match.groupdict()
    first, second = (value.day, value.month) if form.day_first else (value.month, value.day)
    numbers = {"year": value.year, "m": value.month, "d": value.day, "a": first, "b": second}
    pieces = [(*match.span(name), _digits(parts[name], number)) for name, number in numbers.items() if parts.get(name)]
    if parts.get("month"):
        pieces.append((*match.span("month"), _named(parts["month"], value.month)))
    written = match[0]
    for start, end, new in sorted(pieces, reverse=True):
        written = written[:start] + new + written[end:]
    written = re.sub(rf"^{_WEEKDAY}", "", written, flags=re.I)
    return re.sub(r"\b0?(\d{1,2})(?:st|nd|rd|th)\b", _ordinal, written)


def _ordinal(match: re.Match) -> str:
    number = int(match[1])
    ending = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _digits(old: str, number: int) -> str:
    if old[0] in "'’":
        return old[0] + f"{number % 100:02d}"
    if len(old) == 2 and number >= 100:
        return f"{number % 100:02d}"
    return f"{number:0{len(old)}d}" if len(old) > 1 else str(number)


def _named(old: str, month: int) -> str:
    plain = old.rstrip(".").lower()
    german = plain in _GERMAN and plain not in _MONTHS
    name = (_GERMAN if german else _MONTHS)[month - 1]
    name = name if len(plain) > 4 or plain in _MONTHS or plain in _GERMAN else name[:3]
    return name.upper() if old.isupper() and len(old) > 1 else name.capitalize() if old[0].isupper() else name


_FIRST_DAY, _DAYS = date(1990, 1, 1), 7000
"""The surrogate of a report's first date is chosen from ``_DAYS`` days that begin with ``_FIRST_DAY``."""


@dataclass
class Surrogates:
    """The surrogates of one report of a subject."""

    subject_id: str
    _ranks: dict[tuple[str, str], int] = field(default_factory=dict)
    _shift: timedelta | None = None

    def replace(self, kind: str, text: str) -> str:
        """Return the surrogate of ``text``, an identifier of the given ``kind``."""
        if kind == "date":
            return self._date(text)
        if kind == "age":
            return "90"
        if kind in ("name", "address") and text[0].isalpha() and not any(map(str.isdigit, text)):
            return self._name(text)
        return self._signs(kind, text)

    def _rank(self, kind: str, value: str) -> int:
        kinds = sum(ranked_kind == kind for ranked_kind, _ in self._ranks)
        return self._ranks.setdefault((kind, value), kinds)

    def _name(self, text: str) -> str:
        if len(text) == 1:
            return chr(ord("A" if text.isupper() else "a") + self._number("initial", self._rank("initial", text)) % 26)
        names = load_rules().surrogates
        start = self._number("name", 0)
        name = names[(start + self._rank("name", text.lower())) % len(names)]
        return name.upper() if text.isupper() else name.lower() if text.islower() else name

    def _signs(self, kind: str, text: str) -> str:
        """Return ``text`` with invented digits and letters. Separators stay, and capitals stay capitals."""
        rank = self._rank(kind, text)
        signs = []
        for position, sign in enumerate(text):
            number = self._number(kind, rank, position)
            if sign.isdigit():
                signs.append(str(number % 10))
            elif sign.isalpha():
                signs.append(chr(ord("A" if sign.isupper() else "a") + number % 26))
            else:
                signs.append(sign)
        return "".join(signs)

    def _date(self, text: str) -> str:
        day = parse_date(text)
        if day is None:
            return self._signs("date", text)
        if self._shift is None:
            target = _FIRST_DAY + timedelta(days=self._number("date") % _DAYS)
            self._shift = day.at(target) - day.value
        try:
            return write_date(text, day, day.value + self._shift)
        except (OverflowError, ValueError):
            return self._signs("date", text)

    def _number(self, *parts: object) -> int:
        return stable_hash("surrogate", self.subject_id, *parts)
