"""Small tables (Parquet, TSV, CSV) and JSON Lines, with atomic writing, reproducible bytes and checksums."""

import hashlib
import io
import json
import mmap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, Columns, check_columns, schema
from cxr.base.errors import unreadable_file_error
from cxr.base.exclusions import REASONS

DIGEST = "digest"  # metadata key of a Parquet file's own digest; polars does not write page checksums
BLANK = "0" * 32  # placeholder for a Parquet file's digest while it is computed
BEFORE_DIGEST = b"\x18%c%b\x18%c" % (len(DIGEST), DIGEST.encode(), len(BLANK))
"""Bytes before the digest in a Parquet file: metadata key, and lengths of key and digest in Thrift's encoding."""
CRC = "crc32"  # last key of a checked JSON line: CRC-32 of the line before this key, eight hexadecimal digits


def write_table(path: str | Path, table: pl.DataFrame, columns: Columns | None = None) -> None:
    """Write a table as Parquet, TSV or CSV, depending on the file name's ending. The same rows give the same bytes.

    In TSV and CSV, nulls and empty texts both become empty cells, and texts that look like formulas get an apostrophe
    (:func:`guard_formulas`). Raises ValueError if the table has other columns than ``columns``.
    """
    if columns is not None:
        check_columns(table, columns, Path(path).name)
    with atomic_file(path) as temporary:
        if Path(path).suffix == ".parquet":
            temporary.write_bytes(_with_digest(table))
        else:
            # polars would write an empty text as "" to distinguish it from null; spreadsheets do not distinguish them
            plain = guard_formulas(table.with_columns(pl.col(pl.String).replace("", None)))
            plain.write_csv(temporary, separator="\t" if Path(path).suffix == ".tsv" else ",")


def write_rows(path: str | Path, rows: Iterable[dict | tuple], columns: Columns) -> None:
    """Write rows (dicts or tuples) with :func:`write_table` as a table with the declared columns."""
    table = pl.DataFrame(list(rows), schema=schema(columns), orient="row", infer_schema_length=None)
    write_table(path, table, columns)


def _with_digest(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file, compression="zstd", statistics=False, metadata={DIGEST: BLANK})
    data = file.getvalue()
    start = data.rindex(BEFORE_DIGEST) + len(BEFORE_DIGEST)
    return data[:start] + _digest(data, start) + data[start + len(BLANK) :]


def _check_digest(data: bytes | mmap.mmap) -> None:
    position = data.rfind(BEFORE_DIGEST)
    start = position + len(BEFORE_DIGEST)
    if position >= 0 and _digest(data, start) != data[start : start + len(BLANK)]:
        raise ValueError("its digest does not match its bytes")


def _digest(data: bytes | mmap.mmap, start: int) -> bytes:
    digest = hashlib.blake2b(digest_size=len(BLANK) // 2)
    with memoryview(data) as view:
        digest.update(view[:start])
        digest.update(BLANK.encode())
        digest.update(view[start + len(BLANK) :])
    return digest.hexdigest().encode()


def read_table(path: str | Path) -> pl.DataFrame:
    """Read a Parquet, TSV or CSV table. In TSV and CSV, empty cells of text columns become "".

    Raises StoreError if the table cannot be read, or if the digest in a Parquet file does not match its bytes.
    """
    try:
        if Path(path).suffix == ".parquet":
            data = Path(path).read_bytes()
            _check_digest(data)
            return pl.read_parquet(data)
        table = pl.read_csv(path, separator="\t" if Path(path).suffix == ".tsv" else ",")
        return unguard_formulas(table.with_columns(pl.col(pl.String).fill_null("")))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise unreadable_file_error(Path(path), error) from None


def scan_table(path: str | Path) -> pl.LazyFrame:
    """Return a polars LazyFrame of a Parquet table that may be too large for memory.

    Raises StoreError if the table cannot be read, or if its digest does not match its bytes.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_digest(data)
        table = pl.scan_parquet(path)
        table.collect_schema()
        return table
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise unreadable_file_error(Path(path), error) from None


def read_tables(paths: str | Path | Iterable[str | Path]) -> pl.DataFrame:
    """Read one table, or several tables with the same columns, and return all rows as one table."""
    return pl.concat([read_table(path) for path in ([paths] if isinstance(paths, str | Path) else paths)])


def write_lines(path: str | Path, rows: Iterator[dict] | list[dict], *, checked: bool = False) -> None:
    """Write JSON Lines atomically (UTF-8, keys in the given order). ``checked`` adds a checksum to each line."""
    texts = (json.dumps(row, ensure_ascii=False) for row in rows)
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines((_checked(text) if checked else text) + "\n" for text in texts)


def _checked(text: str) -> str:
    start = text.removesuffix("}")
    return f'{start}, "{CRC}": "{zlib.crc32(start.encode()):08x}"}}'


def read_lines(path: str | Path) -> Iterator[dict]:
    """Yield the objects of a JSON Lines file without their checksums. Raises StoreError for a damaged line."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError(f"line {number} is not an object")
                if CRC in line and _checked(text.rpartition(f', "{CRC}"')[0] + "}") != text.removesuffix("\n"):
                    raise ValueError(f"line {number} does not match its checksum")
                line.pop(CRC, None)
                yield line
    except (OSError, ValueError) as error:
        raise unreadable_file_error(Path(path), error) from None


EXCLUDED = {
    "image_id": Column(pl.String, "Image; null if a whole study is excluded."),
    "study_id": Column(pl.String, "Study of the image."),
    "stage": Column(pl.String, "Stage that excluded the image or study."),
    "reason": Column(pl.String, "Code of the reason ([reasons.md](reasons.md))."),
    "detail": Column(pl.String, "Details of the reason, without paths, names or patients' identifiers."),
}
"""Columns of a stage's ledger, the table of images and studies that the stage excludes."""
CORRECTED = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Study of the image."),
    "correction": Column(pl.String, "Header fault that was corrected or ignored, or rotation of the image to upright."),
}
"""Columns of the table of images that are used although their headers are wrong, with one row per correction."""
THRESHOLDS = {"thresholds": Column(pl.String, "Name of the threshold set.")}
"""Additional column of a table that merges the results for several threshold sets."""
EXCLUDED_SCHEMA = schema(EXCLUDED)


def write_corrected(path: str | Path, rows: list[dict]) -> None:
    """Write a sorted table of rows with the columns of :data:`CORRECTED`."""
    table = pl.DataFrame(rows, schema=schema(CORRECTED))
    write_table(path, table.sort("image_id", "study_id", "correction"), CORRECTED)


def write_excluded(path: str | Path, rows: list[dict]) -> None:
    """Write a ledger: a sorted table with the columns of :data:`EXCLUDED`. Raises ValueError for an unknown reason."""
    unknown = {row["reason"] for row in rows} - REASONS.keys()
    if unknown:
        raise ValueError(f"resources/reasons.toml lacks the reason codes {sorted(unknown)}: add them")
    table = pl.DataFrame(rows, schema=EXCLUDED_SCHEMA)
    write_table(path, table.sort("image_id", "study_id", "reason", "detail"), EXCLUDED)


# In TSV and CSV, a text that a spreadsheet would run as a formula gets an apostrophe: reports may begin with "-", ids
# with "=". A text that already has apostrophes before one of these signs gets one more, so that reading restores it.
_START, _SIGN, _NUMBER = r"^[=@\t\r]", r"^[+-]", r"^[+-][0-9.,eE+\-% ]*$"


def _is_formula(text: pl.Expr) -> pl.Expr:
    text = text.str.strip_chars_start("'")
    return text.str.contains(_START) | (text.str.contains(_SIGN) & ~text.str.contains(_NUMBER))


def guard_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table for writing, in which texts that look like formulas begin with an apostrophe."""
    text = pl.col(pl.String)
    return table.with_columns(pl.when(_is_formula(text)).then("'" + text).otherwise(text).name.keep())


def unguard_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without the apostrophes that :func:`guard_formulas` added."""
    text = pl.col(pl.String)
    is_guarded = text.str.starts_with("'") & _is_formula(text)
    return table.with_columns(pl.when(is_guarded).then(text.str.slice(1)).otherwise(text).name.keep())


def unguard_cell(cell: str) -> str:
    """Remove the apostrophe that :func:`guard_formulas` added to a cell, if there is one."""
    return unguard_formulas(pl.DataFrame({"cell": [cell]})).item()
