"""Converting times of acquisition, as people and programs write them, to texts that sort by time."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from cxr.base.errors import UserError
from cxr.base.user_tables import listed_lines

_ZONE = r"\s*(?P<zone>Z|[+-]\d\d:?\d\d)?"
_TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
    rf"\s*(?P<half>[AP]\.?M\.?)?{_ZONE})?"
)
_NUMERIC = re.compile(rf"(\d{{4}}|\d\d?)([./-])(\d\d?)\2(\d{{4}}|\d\d?){_TIME}", re.IGNORECASE)
_NAMED = re.compile(
    rf"(?:(?P<day>\d\d?)[. -]+(?P<name>[a-z]{{3,10}})|(?P<name2>[a-z]{{3,10}})[. ]+(?P<day2>\d\d?),?)[. -]+"
    rf"(?P<year>\d{{4}}|\d\d){_TIME}",
    re.IGNORECASE,
)
_DICOM = re.compile(
    r"((?:19|2\d)\d\d)(\d\d)(\d\d)(?:[T ]?(?P<hour>\d\d)(?P<minute>\d\d)(?:(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?)?"
    rf"{_ZONE})?"
)
_MONTHS = {
    "jan": 1, "ene": 1, "feb": 2, "fev": 2, "mar": 3, "mrz": 3, "apr": 4, "avr": 4, "abr": 4, "may": 5, "mai": 5,
    "jun": 6, "juin": 6, "jul": 7, "juil": 7, "aug": 8, "aou": 8, "ago": 8, "sep": 9, "oct": 10, "okt": 10, "nov": 11,
    "dec": 12, "dez": 12, "dic": 12,
}  # fmt: skip
"""{first letters of a month's name in English, German, French or Spanish: number of the month}."""
_NUMBER = re.compile(r"(\d+)((?:\.\d+)?)")
_CENTURY_FROM = 70  # two-digit years from 70 on are 19xx, others 20xx, as in POSIX


def sortable_times(texts: Mapping[int, str], key: str) -> tuple[dict[int, str], list[int]]:
    """Convert a column of times; return {line: ``YYYYMMDD`` or ``YYYYMMDDHHMMSS.ffffff``}, and lines without a date.

    ``texts``: {line number: text}, without empty texts; ``key``: name of the column for messages. One format must fit
    all dates. Times with a zone are converted to UTC. A column without any date is not changed, except that numbers get
    leading zeros, so that they sort. Raises UserError if the dates have several formats, or if it is unclear whether
    the day or the month comes first.
    """
    readings = {line: dict(_readings(text)) for line, text in texts.items()}
    dates = {line: times for line, times in readings.items() if times}
    if not dates:
        return _padded(texts), []
    formats = sorted(set.intersection(*(set(times) for times in dates.values())))
    remedy = "write all as year-month-day, such as 2024-01-31"
    if not formats:
        first = min(dates, key=lambda line: len(dates[line]))
        second = next(line for line in dates if set(dates[line]).isdisjoint(dates[first]))
        raise UserError(f"{key}: the dates of lines {first} and {second} are written in two formats: {remedy}")
    unclear = [line for line, times in dates.items() if len({times[name] for name in formats}) > 1]
    if unclear:
        where = f"{listed_lines(unclear)} begin with a number that may be the day or the month"
        raise UserError(f"{key}: the dates of {where}: {remedy}")
    return {line: times[formats[0]] for line, times in dates.items()}, sorted(readings.keys() - dates.keys())


def _padded(texts: Mapping[int, str]) -> dict[int, str]:
    numbers = {line: _NUMBER.fullmatch(text) for line, text in texts.items()}
    if not all(numbers.values()):
        return dict(texts)
    width = max((len(number[1]) for number in numbers.values()), default=0)
    return {line: number[1].zfill(width) + number[2] for line, number in numbers.items()}


def _readings(text: str) -> Iterator[tuple[str, str]]:
    """Yield (format, sortable time) for each way in which a text can be read as a date."""
    orders: list[tuple[str, str, str, str]] = []
    if match := _DICOM.fullmatch(text):
        orders = [("YYYYMMDD", *match.group(1, 2, 3))]
    elif match := _NUMERIC.fullmatch(text):
        first, sign, second, third = match.group(1, 2, 3, 4)
        if len(first) == 4:
            orders = [(f"y{sign}m{sign}d", first, second, third)] if len(third) < 4 else []
        else:
            orders = [(f"d{sign}m{sign}y", third, second, first)]
            orders += [(f"m{sign}d{sign}y", third, first, second)] if sign != "." else []
    elif match := _NAMED.fullmatch(unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()):
        letters = (match["name"] or match["name2"]).lower()
        month = str(_MONTHS.get(letters[:4]) or _MONTHS.get(letters[:3], 0))
        orders = [("day and name of month", match["year"], month, match["day"] or match["day2"])]
    for name, year, month, day in orders:
        number = int(year)
        if len(year) < 3:
            number += 1900 if number >= _CENTURY_FROM else 2000
        hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
        if half := match.groupdict().get("half"):
            hour = hour % 12 + (12 if half[0] in "pP" else 0)
        microsecond = int((match["part"] or "0")[:6].ljust(6, "0"))
        try:
            time = datetime(number, int(month), int(day), hour, minute, second, microsecond, tzinfo=UTC)
        except ValueError:
            continue
        zone = match["zone"]
        if zone and zone not in "zZ":
            shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            time = time - shift if zone[0] == "+" else time + shift
        text = f"{time:%Y%m%d%H%M%S}" if match["hour"] else f"{time:%Y%m%d}"
        yield name + (" with a zone" if zone else ""), text + (f".{time:%f}" if time.microsecond else "")
