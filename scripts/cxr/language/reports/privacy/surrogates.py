"""Surrogates for identifiers: the same form, but no information about the identifier.

A surrogate depends on the subject, the kind of identifier and the number of earlier ones of that kind, never on the
identifier itself, so neither can be computed from the other. Equal identifiers of a report have equal surrogates, and
dates keep their distances.
"""

from dataclasses import dataclass, field
from datetime import date, timedelta

from cxr.base.seeds import stable_hash
from cxr.language.reports.privacy.dates import parse_date, write_date
from cxr.language.reports.privacy.rules import surrogate_names

_FIRST_DAY, _DAYS = date(1990, 1, 1), 7000


@dataclass
class Surrogates:
    """The surrogates of one report of a subject."""

    subject_id: str
    _ranks: dict[tuple[str, str], int] = field(default_factory=dict)
    _shift: timedelta | None = None

    def replace(self, kind: str, text: str) -> str:
        """Return the surrogate of an identifier of a ``kind``."""
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
        names = surrogate_names()
        start = self._number("name", 0)
        name = names[(start + self._rank("name", text.lower())) % len(names)]
        return name.upper() if text.isupper() else name.lower() if text.islower() else name

    def _signs(self, kind: str, text: str) -> str:
        """Replace digits by digits and letters by letters; separators stay."""
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
