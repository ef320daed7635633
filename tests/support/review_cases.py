"""Made units, pictures and pages for the tests of the review, with values that a test can work out by hand."""

from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS
from cxr.plotting.encoding import encode_grey_image, encode_mask
from cxr.reporting.review.make_pages import describe_unit
from cxr.reporting.review.page import page_data, read_form, write_page
from cxr.reporting.review.units import Unit, deal_units, order_items

VERDICT = read_form("verdict")
IMAGES = 30
LEFT, RIGHT = 100, 200
"""Grey levels of the two halves of every picture; a band at the top tells the pictures apart."""
SQUARE = slice(192, 320)
"""Rows and columns of every mask."""
NASTY = (
    """</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"> "quoted" & 'so' \u2028 <!--"""
)


def picture(image_id: str) -> bytes:
    image = np.full((512, 512), LEFT, np.uint8)
    image[:, 256:] = RIGHT
    image[:16] = int(image_id.removeprefix("image-secret-"))
    return encode_grey_image(image, 0)[1]


def mask() -> bytes:
    area = np.zeros((512, 512), bool)
    area[SQUARE, SQUARE] = True
    return encode_mask(area)


def unit(number: int, *, positive: bool) -> Unit:
    return Unit(
        subject_id=f"subject-secret-{number % IMAGES}",
        study_id=f"study-secret-{number % IMAGES}",
        image_id=f"image-secret-{number % IMAGES}",
        target=LESIONS[number % 7],
        location=(VALID_LOCATIONS[number % 10],) if number % 11 else (),
        mask_id=f"mask-secret-{number}" if positive else None,
        section_name="findings",
        report=f"Report {number}. {NASTY}" if number % 2 else f"Report {number}, broken\n by its width.\n1. A list.",
        pair_ids=[f"pair-secret-{number}"],
    )


def units(positives: int, negatives: int) -> list[Unit]:
    """Return distinct units, those with a mask first."""
    found = [unit(number, positive=True) for number in range(positives)]
    for number in range(negatives):
        made = unit(number, positive=False)
        made.location = (f"place {number}",)
        found.append(made)
    return found


def make_page(path: Path, expert: str = "A", *, positives: int, negatives: int, seed: int = 1) -> tuple[dict, list]:
    """Write one expert's page, who is alone; return its data and its (code, unit) in order."""
    items = order_items(deal_units(units(positives, negatives), [expert], seed)[expert], expert, seed)
    rows = [
        (code, describe_unit(unit, picture(unit.image_id), mask() if unit.is_positive else None))
        for code, unit in items
    ]
    data, pictures = page_data(expert, VERDICT, rows)
    write_page(path, VERDICT, data, pictures, "draw fewer")
    return data, items


def cells(table: pl.DataFrame, **wanted: str) -> dict:
    """Return the one row of a table that has these values."""
    return table.row(by_predicate=pl.all_horizontal(pl.col(n) == v for n, v in wanted.items()), named=True)
