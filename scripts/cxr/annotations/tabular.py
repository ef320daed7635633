"""Shared code of the formats: reading tables, parsing numbers in cells, and refusing damaged files."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cxr.annotations.regions import Annotation, Annotations
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.user_tables import read_frame, require_columns

NO_FINDING = ("no finding", "normal", "no lung opacity / not normal")  # labels of images without a region, lower case


def read_rows(key: str, path: Path, kind: str, required: Sequence[str], besides: Sequence[str] = ()) -> Iterator[dict]:
    """Yield the rows of a table, {column: text}. The first column of ``required`` has the image's id. The columns
    ``besides`` are optional. Raises UserError, with setting ``key`` and format ``kind``, for a missing column."""
    table = read_frame(path, key, (*required, *besides), ids=required[:1])
    require_columns(table.columns, required, path, key, f"give a file of the format {kind}")
    return table.iter_rows(named=True)


def drop_no_finding(regions: Sequence[Annotation]) -> Annotations:
    """Return the regions except those labelled "no finding", whose images still count as annotated."""
    images_without_finding = {region.image for region in regions if region.label.lower() in NO_FINDING}
    return Annotations([region for region in regions if region.label.lower() not in NO_FINDING], images_without_finding)


Box = tuple[float, float, float, float]


@contextmanager
def refuse_damaged(path: Path, fault: str) -> Iterator[None]:
    """Raise UserError with the text ``fault`` and the cause if the code of a ``with`` block cannot read a file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse_machine_fault(path, error)
        raise UserError(f"{fault} ({type(error).__name__}: {error}): check the file") from None


def parse_numbers(cells: Iterable[Any]) -> tuple[float, ...] | None:
    """Return the numbers in cells, or None if any cell is not a number."""
    try:
        return tuple(float(cell) for cell in cells)
    except (TypeError, ValueError):
        return None


def parse_box(cells: Iterable[Any]) -> Box | None:
    """Return the box in cells x1, y1, x2, y2; None if a cell is not a number."""
    numbers = parse_numbers(cells)
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if numbers else None


def box_from_sides(cells: Iterable[Any]) -> Box | None:
    """Return the box (x1, y1, x2, y2) in cells x, y, width, height; None if a cell is not a number."""
    sides = parse_box(cells)
    return sides and (sides[0], sides[1], sides[0] + sides[2], sides[1] + sides[3])
