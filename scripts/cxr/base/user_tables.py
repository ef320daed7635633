"""Strict reading of users' tables: CSV as spreadsheets and databases save it, or Parquet. No other module reads them.

Delimiter (comma, semicolon, tab, bar), encoding (UTF-8, UTF-16, Windows-1252), line ends (also CR alone) and headings
(any case, with spaces) are detected. Identifiers are normalised (:mod:`cxr.base.ids`). A fault that could lose a row or
join two rows is refused with an error that gives the line. The module imports the standard library only, because
Snakemake's main process imports it. Functions for Parquet and for whole tables import polars when they are called.
"""

import csv
import gzip
import io
import logging
import mmap
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.ids import SUSPECT, IdColumn, clean_id, clean_ids, id_fault

log = logging.getLogger("cxr")
csv.field_size_limit(1 << 27)
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
HEAD_BYTES = 1 << 20  # bytes of a table that are checked before any job is planned
ENDINGS = (".dcm", ".dicom", ".png", ".jpg", ".jpeg")
_OTHER_KINDS = (
    (b"PK\x03\x04", "an Excel or OpenDocument workbook, or another ZIP file: save its sheet as CSV (UTF-8)"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save its sheet as CSV (UTF-8)"),
    (b"{\\rtf", "a text document (RTF): save it as CSV (UTF-8)"),
    (b"%PDF", "a PDF file: export the table as CSV (UTF-8)"),
    (b"ARROW1", "an Arrow (Feather) file: save it as Parquet or CSV"),
    (b"SQLite format 3", "a SQLite database: export the table as CSV (UTF-8)"),
)
_PARQUET = b"PAR1"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_GUARD = re.compile(r'="(.*)"', re.DOTALL)
_SHOWN_LINES = 5
NO_VALUES = frozenset({"nan", "null", "none", "n/a", "na", "#n/a", "nat", "<na>"})
"""Markers of a missing value, in lower case, which programs write into cells."""


class Fault(ValueError):
    """Error for a fault in a table. The message gives the fault and the remedy. The caller adds the table's name."""


@dataclass(frozen=True)
class Sheet:
    """An open table, which the setting ``key`` names. ``rows`` yields (line number, cells) for each non-blank row.

    Lines count from 1. Rows may have any number of cells. Identifiers in the columns ``ids`` are normalised.
    """

    path: Path
    key: str
    header: list[str]
    rows: Iterator[tuple[int, list[str]]]
    ids: Sequence[str] = ()

    def checked(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows. Raises UserError for a row longer or shorter than the header, or with a bad identifier."""
        places = [(place, name) for place, name in enumerate(self.header) if name in self.ids]
        for line, cells in self.rows:
            if len(cells) != len(self.header):
                counts = f"{len(cells)} cells, the header has {len(self.header)}"
                raise UserError(f"{self.key}: {self.path}, line {line} has {counts}: {REMEDY}")
            for place, name in places:
                if fault := id_fault(cells[place]):
                    raise UserError(f"{self.key}: {self.path}, line {line}: {name} {fault}")
            yield line, cells

    def records(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield (line number, {column: stripped cell}) for each row of :meth:`checked`."""
        for line, cells in self.checked():
            yield line, {name: cell.strip() for name, cell in zip(self.header, cells, strict=True)}

    def require(self, columns: Sequence[str], remedy: str = "") -> None:
        """Raise UserError if the table lacks one of the columns. The default ``remedy`` is to add the column."""
        require_columns(self.header, columns, self.path, self.key, remedy)


def require_columns(header: list[str], columns: Sequence[str], path: str | Path, key: str, remedy: str = "") -> None:
    """Raise UserError if a column is not in ``header``. ``key``: setting for ``path``. Default ``remedy``: add it."""
    if missing := [name for name in columns if name not in header]:
        noun, pronoun = ("columns", "them") if len(missing) > 1 else ("column", "it")
        remedy = remedy or f"add {pronoun} (the table has {', '.join(filter(None, header))})"
        raise UserError(f"{key}: {path} lacks the {noun} {', '.join(missing)}: {remedy}")


REMEDY = 'put a cell that holds the delimiter into quotation marks ("…")'


def fold_name(name: str) -> str:
    """Return a heading for comparison: in lower case, without spaces, hyphens, dots, underscores or invisible signs."""
    return re.sub(r"[\s_.\-]+", "", clean_id(name).casefold())


def is_no_value(cell: str) -> bool:
    """Return whether a cell is empty or a marker of a missing value (NaN, NULL, N/A …)."""
    return not cell.strip() or cell.strip().casefold() in NO_VALUES


def read_sheet(
    path: str | Path,
    key: str,
    names: Sequence[str],
    *,
    ids: Sequence[str] = (),
    words: Sequence[str] = (),
    single_lines: Sequence[str] = (),
    head: bool = False,
    headless: bool = False,
) -> Sheet:
    """Open a table. ``key`` is the setting that names its file, and ``names`` are the columns to look for.

    A heading that differs from one of ``names`` only in case, spaces, hyphens, dots or underscores gets that name.
    ``ids`` are columns of identifiers, which are normalised and checked. ``words`` are columns whose cells are single
    words, and ``single_lines`` are columns whose cells have one line. Both show whether a stray quotation mark has
    joined several rows into one cell. If ``head``, only the first :data:`HEAD_BYTES` are read. If ``headless``, the
    table may lack a header. The result then has the header [], and its first column holds identifiers. Raises
    UserError for a faulty table, also while rows are read and after the last row.
    """
    path = Path(path)
    rows: Iterator[tuple[int, list[str]]]
    try:
        data = _bytes(path, HEAD_BYTES if head else -1)
        if data.startswith(_PARQUET):
            table = _parquet(path, head)
            header = table.columns
            rows = ((line, list(row)) for line, row in enumerate(table.iter_rows(), 2) if any(row))
        else:
            text = _decoded(data, path, head and len(data) >= HEAD_BYTES)
            header, rows = _text_rows(text, path, names, words, single_lines)
        header = _renamed(header, names)
        if headless and not set(header) & set(names):
            rows = chain([(1, header)], rows) if any(header) else rows
            return Sheet(path, key, [], _guarded_rows(path, key, _cleaned(rows, {0: "identifier"})))
        _check_header(header, names)
    except (Fault, OSError, EOFError, zlib.error) as error:
        raise _sentence(path, key, error) from None
    places = {place: name for place, name in enumerate(header) if name in ids}
    return Sheet(path, key, header, _guarded_rows(path, key, _cleaned(rows, places)), ids)


def _sentence(path: Path, key: str, error: Exception, kind: str = "CSV or Parquet") -> UserError:
    if isinstance(error, Fault):
        return UserError(f"{key}: {path}{error}")
    refuse_machine_fault(path, error)
    why = getattr(error, "strerror", None) or str(error)
    return UserError(f"{key}: {path} cannot be read as {kind} ({why}): check the path, the file and its permissions")


def _guarded_rows(path: Path, key: str, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from rows
    except Fault as error:
        raise _sentence(path, key, error) from None


def _cleaned(rows: Iterator[tuple[int, list[str]]], places: Mapping[int, str]) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with clean ids in the columns ``places``, {index: name}. Raises Fault at the end for a bad column."""
    columns = {place: IdColumn() for place in places}
    for line, cells in rows:
        for place, column in columns.items():
            if place < len(cells):
                cells[place] = clean_id(cells[place])
                column.add(cells[place], line)
        yield line, cells
    for place, column in columns.items():
        fault, lines = column.fault()
        if fault:
            raise Fault(f", {listed_lines(lines)}: in {places[place]}, {fault}")


def listed_lines(lines: Sequence[int]) -> str:
    """Return the first few line numbers as text for a message: "line 3", "lines 3, 5, 8"."""
    numbers = ", ".join(map(str, lines[:_SHOWN_LINES])) + (" …" if len(lines) > _SHOWN_LINES else "")
    return f"line {numbers}" if len(lines) == 1 else f"lines {numbers}"


def _bytes(path: Path, most: int) -> bytes:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else open(path, "rb") as file:
        return file.read(most)


def _decoded(data: bytes, path: Path, partial: bool) -> str:
    """Decode a table. If ``partial``, the data may end within a line, so the last line is dropped."""
    for magic, remedy in _OTHER_KINDS:
        if data.startswith(magic):
            raise Fault(f" is {remedy}")
    text = _text_of(data, path, partial)
    if partial:
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    if control := _CONTROL.search(text):
        line = _line_after(text[: control.start()].encode())
        raise Fault(f", line {line} has the control character {ord(control.group()):#04x}: save the table as UTF-8 CSV")
    if text.lstrip()[:1] in ("<", "{"):
        raise Fault(" is HTML, XML or JSON, not CSV: export the table as CSV (UTF-8)")
    return text


def read_text(path: str | Path, key: str) -> str:
    """Return the text of a user's file, decoded like a table. Raises UserError if the file cannot be read."""
    try:
        return _text_of(_bytes(Path(path), -1), Path(path), False)
    except (Fault, OSError, EOFError, zlib.error) as error:
        raise _sentence(Path(path), key, error, "text") from None


def _text_of(data: bytes, path: Path, partial: bool) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data[: len(data) // 2 * 2].decode("utf-16", "ignore" if partial else "strict")
        except UnicodeDecodeError:
            raise Fault(" is damaged UTF-16 text: save it as UTF-8 CSV") from None
    if b"\0" in data[:4096]:
        raise Fault(" is not text: save it as UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if partial and error.end >= len(data) - 3:  # the part that was read ends within a character
            return data[: error.start].decode("utf-8-sig")
        before = data[: error.start]
        line = _line_after(before)
        if not before.isascii():  # UTF-8 so far
            raise Fault(f", line {line} is not UTF-8 although earlier lines are: save the table as UTF-8 CSV") from None
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        raise Fault(f", line {line} is neither UTF-8 nor Windows-1252: save the table as UTF-8 CSV") from None
    if not partial:
        log.warning("%s is not UTF-8 and is read as Windows-1252: save it as UTF-8 CSV if letters come out wrong", path)
    return text


def _line_after(before: bytes) -> int:
    return before.count(b"\n") + before.count(b"\r") - before.count(b"\r\n") + 1


def _text_rows(
    text: str, path: Path, names: Sequence[str], words: Sequence[str], single_lines: Sequence[str]
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    lines = io.StringIO(text, newline="")
    skipped, first, mark = 0, "", ""
    for first in lines:
        separator = re.fullmatch(r"\s*\"?sep=(.)\"?\s*", first)
        mark = separator.group(1) if separator else mark
        if not separator and first.strip(' ;,|\t\r\n"'):
            break
        skipped += 1
    else:
        first = ""
    mark = mark or _delimiter(first, path, names)
    rows = _rows(chain([first] if first else [], lines), mark, skipped, words, single_lines)
    _, header = next(rows, (0, []))
    return [cell.strip() for cell in header], rows


def _delimiter(first: str, path: Path, names: Sequence[str]) -> str:
    """Return the delimiter that finds most ``names`` in the header ``first``, in doubt a tab for .tsv, else a comma."""
    usual = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    headings = {fold_name(name) for name in names}

    def worth(mark: str) -> tuple:
        cells = next(csv.reader([first], delimiter=mark, skipinitialspace=True), [])
        num_known, is_usual = len(headings & {fold_name(cell) for cell in cells}), mark == usual
        return num_known, is_usual and len(cells) > 1, len(cells), is_usual

    return max(DELIMITERS, key=worth)


def _rows(
    lines: Iterator[str], mark: str, skipped: int, words: Sequence[str], single_lines: Sequence[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of the header and each non-blank row, without empty cells beyond the header.
    ``mark``: delimiter. ``skipped``: number of lines before ``lines``. Otherwise as in :func:`read_sheet`."""
    reader = csv.reader(lines, delimiter=mark, strict=True, skipinitialspace=True)
    header: list[str] = []
    word_places: list[int] = []
    line_places: list[int] = []
    while True:
        line = reader.line_num + skipped + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = reader.line_num + skipped
            where = f"line {line}" if last == line else f"the row that begins in line {line}, at line {last}"
            fault = f", line {line} cannot be read as CSV ({error}): correct the line"
            if "end of data" in str(error):
                fault = _STRAY_MARK.format(line, "never ends")
            elif "expected after" in str(error):
                fault = f', {where}: text follows the quotation mark (") that ends a cell, so one mark is too many: '
                fault += _REMOVE_MARK
            raise Fault(fault) from None
        if not any(cell.strip() for cell in cells):
            continue
        if header and reader.line_num + skipped > line:
            _check_swallowed(cells, line, mark, len(header), word_places, line_places)
        while len(cells) > (len(header) or 1) and not cells[-1].strip():
            cells.pop()
        if not header:
            header = cells
            word_places, line_places = (
                [place for place, cell in enumerate(header) if fold_name(cell) in set(map(fold_name, columns))]
                for columns in (words, single_lines)
            )
        # spreadsheets save a cell as the formula ="…" to keep leading zeros
        formulas = [_GUARD.fullmatch(cell.strip()) if cell.lstrip().startswith("=") else None for cell in cells]
        yield line, [formula[1] if formula else cell for cell, formula in zip(cells, formulas, strict=True)]


def _check_swallowed(
    cells: list[str], line: int, mark: str, width: int, word_places: list[int], line_places: list[int]
) -> None:
    """Raise Fault if a multi-line cell seems to contain rows of the table, joined by a stray quotation mark.
    ``mark``: delimiter. ``width``: number of columns. ``word_places``, ``line_places``: indexes of columns whose cells
    are single words, or single lines."""
    if any("\n" in cells[place] or "\r" in cells[place] for place in line_places if place < len(cells)):
        raise Fault(_STRAY_MARK.format(line, _CONTINUES))
    for place, cell in enumerate(cells):
        lines = list(io.StringIO(cell, newline=""))[1:]
        for text in lines:
            parts = next(csv.reader([text], delimiter=mark), [])
            # the last joined row ends at the quotation mark that ends the cell, in the cell's own column
            if len(parts) < width and not (text is lines[-1] and len(parts) == place + 1):
                continue
            words = [parts[word_place] for word_place in word_places if word_place < len(parts)]
            if len(words) == len(word_places) and all(word and not re.search(r"\s", word) for word in words):
                raise Fault(_STRAY_MARK.format(line, _CONTINUES))


_REMOVE_MARK = "remove the mark, or write it twice inside a cell in quotation marks"
_STRAY_MARK = f', line {{}}: a quotation mark (") opens a cell of this row that {{}}: {_REMOVE_MARK}'
_CONTINUES = "continues over the rows below it"


def _renamed(header: list[str], names: Sequence[str]) -> list[str]:
    name_by_heading = {fold_name(name): name for name in names}
    return [name_by_heading.get(fold_name(name), name) for name in header]


def _check_header(header: list[str], names: Sequence[str]) -> None:
    if not any(header):
        raise Fault(" has no rows: put a header and at least one row into it")
    if names and not set(header) & set(names):  # the message does not quote the line, which may hold a patient's data
        raise Fault(f" has no known heading: write its headings, out of {', '.join(names)}, into the first line")
    repeated = sorted({name for name in header if header.count(name) > 1 and name})
    if repeated:
        raise Fault(f" has the column {repeated[0]!r} twice: rename one")


def _parquet(path: Path, head: bool):
    import polars as pl

    try:
        table = pl.read_parquet(path, n_rows=1 if head else None)
        integral = [name for name, kind in table.schema.items() if kind.is_float() and _integral(table[name])]
        table = table.with_columns(pl.col(integral).cast(pl.Int64)).select(pl.all().cast(pl.String).fill_null(""))
    except pl.exceptions.PolarsError:
        problem = "is a damaged Parquet file, or has a column that is not text, number or date"
        raise Fault(f" {problem}: save the table again with the program that made it") from None
    return table.rename(str.strip)


def _integral(column) -> bool:
    """Return whether all floats of a column are whole numbers. pandas writes 7.0 for 7 if some cells are empty."""
    numbers = column.drop_nulls()
    is_whole = numbers.is_finite() & (numbers == numbers.round())
    return bool(len(numbers)) and bool(is_whole.all()) and numbers.abs().max() < 2**53


_BATCH = 1 << 17  # rows converted to a table at a time, because Python objects take ten times the memory
_BIG = 1 << 24  # size in bytes from which polars reads a table, if the table has no quotation mark


def read_frame(path: str | Path, key: str, names: Sequence[str], *, ids: Sequence[str] = (), words: Sequence[str] = ()):
    """Read a whole table as a ``polars.DataFrame`` of texts, with "" in empty cells.

    The arguments are as in :func:`read_sheet`. Raises UserError, also for a row longer or shorter than the header.
    """
    import polars as pl

    path = Path(path)
    plain = _plain(path, names)
    if plain is not None and not any(plain[name].str.contains(SUSPECT).any() for name in ids if name in plain.columns):
        return plain.with_columns(clean_ids(name) for name in ids if name in plain.columns)
    sheet = read_sheet(path, key, names, ids=ids, words=words)
    schema = dict.fromkeys((name or f"_{place}" for place, name in enumerate(sheet.header)), pl.String)
    parts, rows = [pl.DataFrame(schema=schema)], sheet.checked()
    while batch := [cells for _, cells in islice(rows, _BATCH)]:
        parts.append(pl.DataFrame(batch, schema=schema, orient="row"))
    return pl.concat(parts)


def _plain(path: Path, names: Sequence[str]):
    """Return a table read by polars if that is safe (Parquet, or large text without quotation marks), else None."""
    import polars as pl

    try:
        with open(path, "rb") as file:
            start = file.read(len(_PARQUET))
        if start == _PARQUET:
            table = _parquet(path, False)
            header = _renamed(table.columns, names)
            _check_header(header, names)
            return table.rename(dict(zip(table.columns, header, strict=True)))
        if path.stat().st_size < _BIG:
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if start[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff") or start[:3] == b"sep":
                return None
            if any(content.find(mark) >= 0 for mark in (b'"', b"\0")):
                return None
            first = content[: content.find(b"\n") + 1].decode("utf-8-sig")
        mark = _delimiter(first, path, names)
        header = _renamed([cell.strip() for cell in first.split(mark)], names)
        if "" in header or len(set(header)) < len(header):
            return None
        table = pl.read_csv(path, separator=mark, quote_char=None, infer_schema=False, empty_string_is_null=False)
        table.columns = header
        # polars refuses a row with too many cells, but pads a row with too few
        with open(path, "rb") as file:
            num_marks = sum(part.count(mark.encode()) for part in iter(lambda: file.read(_BIG), b""))
        return table if num_marks == (len(header) - 1) * (len(table) + 1) else None
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None  # the strict reader reports what is wrong, and where
