"""Identifiers in users' tables: their normal form for comparison, and detection of damage by spreadsheets.

The module uses the standard library only, because Snakemake's main process imports it.
"""

import re
import unicodedata

_INVISIBLE = "[\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]"
"""Invisible characters: soft hyphen, joiners, direction marks, variation selectors, byte-order mark."""
_BLANKS = "[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"  # no-break spaces, and spaces of other widths
_MONTH = (
    "jan|janv|feb|f[eé]v|f[eé]vr|m[aä]r|mrz|mars|apr|avr|abr|may|mai|jun|juin|jul|juil|aug|ao[uû]t|ago|sep|sept|oct|"
    "okt|nov|dec|dez|d[eé]c|dic|ene"
)
"""Pattern of the abbreviated months of English, German, French and Spanish spreadsheets."""
_DAY_FIRST = re.compile(rf"\d{{1,2}}[.]?[- ](?:{_MONTH})[.]?", re.IGNORECASE)
_MONTH_FIRST = re.compile(rf"({_MONTH})[.]?[- ]\d{{2}}", re.IGNORECASE)
_NUMBER_PAIR = re.compile(r"\d{1,3}-\d{1,4}")
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d[ T]00:00:00")
_SHORTENED = re.compile(r"[+-]?\d+(?:[.,]\d+)?E[+-]\d+", re.IGNORECASE)  # ``12e5`` is an identifier
_ERROR = re.compile(r"#\S{2,20}[!?]|#N/A|#NV|#N/D|#{3,}")
_MAY_BE_SPOILT = re.compile(r"#|[+-]?\d+(?:[.,]\d+)?E[+-]|\d{1,2}[.]?[- ][^\W\d]|\d{4}-\d\d-\d\d[ T]", re.IGNORECASE)
KEPT_DIGITS = 15  # number of leading digits that a spreadsheet keeps of a number; zeros replace further digits
SUSPECT = (
    r"(?i)^\d{16,}$|^\d+[.]0+$|^\d{1,2}[.]?[- ]\p{L}|^\p{L}{3,5}[.]?[- ]\d\d$|^[+-]?\d+([.,]\d+)?E[+-]|^#|00:00:00$"
)
"""Regular expression, in the syntax of polars, that matches every cell in which this module may find a fault."""
AS_TEXT = "save the column as text"


def clean_id(text: str) -> str:
    """Return an identifier in its normal form for comparison: NFC, no invisible characters, no surrounding spaces."""
    if text.isascii():
        return text.strip()
    visible = re.sub(_INVISIBLE, "", re.sub(_BLANKS, " ", text))
    return unicodedata.normalize("NFC", visible).strip()


def clean_ids(column: str):
    """Return the polars expression that applies :func:`clean_id` to a column of texts."""
    import polars as pl

    visible = pl.col(column).str.replace_all(_BLANKS, " ").str.replace_all(_INVISIBLE, "")
    return visible.str.normalize("NFC").str.strip_chars()


def spreadsheet_error(text: str) -> str:
    """Return a cell's text if it is a spreadsheet's error value (``#NAME?``, ``####``), else ""."""
    text = text.strip()
    return text if text.startswith("#") and _ERROR.fullmatch(text) else ""


def id_fault(text: str) -> str:
    """Return how a spreadsheet has damaged an identifier, with the remedy, or "" if the identifier is intact.

    The text does not quote the identifier. "12-JAN" counts as intact, because spreadsheets write "12-Jan".
    """
    if not _MAY_BE_SPOILT.match(text):
        return ""
    if error := spreadsheet_error(text):
        return f"holds the spreadsheet's error {error}: {AS_TEXT}"
    if _SHORTENED.fullmatch(text):
        return f"is a number that a spreadsheet has shortened to the form 1.2E+10: {AS_TEXT}"
    if (not text.isupper() and _DAY_FIRST.fullmatch(text)) or _MIDNIGHT.fullmatch(text):
        return f"was changed to a date by a spreadsheet: {AS_TEXT}"
    return ""


class IdColumn:
    """Search of a column of identifiers for damage that shows only when several cells are compared."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._cut: dict[str, int] = {}
        self._has_whole_long_id = False
        self._months: dict[str, list[int]] = {}
        self._has_other_ids = self._has_number_pairs = False

    def add(self, text: str, line: int) -> None:
        """Add the identifier in one line of the table."""
        if text[:1].isdigit() and text.replace(".", "", 1).isdigit():
            self._lines.setdefault(text, line)
            if len(text) > KEPT_DIGITS and text.isdigit():
                if text[KEPT_DIGITS:].strip("0"):
                    self._has_whole_long_id = True
                else:
                    self._cut.setdefault(text, line)
        month = _MONTH_FIRST.fullmatch(text) if text[:1].isalpha() and not text.isupper() else None
        if month:
            self._months.setdefault(month[1].casefold(), []).append(line)
        elif text:
            self._has_other_ids = True
            self._has_number_pairs = self._has_number_pairs or bool(_NUMBER_PAIR.fullmatch(text))

    def fault(self) -> tuple[str, list[int]]:
        """Return (fault with its remedy, lines that show it), or ("", []) if the column is intact.

        Digits count as lost only if the column has two or more zeros beyond the 15th digit, because an intact
        identifier of 16 digits may end in 0.
        """
        zeros = sum(len(text) - KEPT_DIGITS for text in self._cut)
        if zeros > 1 and not self._has_whole_long_id:
            fault = f"a spreadsheet has kept {KEPT_DIGITS} digits of each number and replaced further digits by zeros"
            return f"{fault}: {AS_TEXT} and export it again from its source", sorted(self._cut.values())
        for text, line in self._lines.items():
            number, point, decimals = text.partition(".")
            if point and not decimals.strip("0") and number in self._lines:
                fault = "a program has changed identifiers to numbers, so that one occurs both with and without .0"
                return f"{fault}: {AS_TEXT}", sorted((self._lines[number], line))
        if self._months and (self._has_number_pairs or (len(self._months) > 1 and not self._has_other_ids)):
            lines = sorted(line for lines in self._months.values() for line in lines)
            return f"a spreadsheet has changed some identifiers to dates: {AS_TEXT}", lines
        return "", []
