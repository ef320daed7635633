"""Write a page per expert from any table of units to judge, and read the completed sheets into one table."""

from collections.abc import Mapping

import polars as pl

from cxr.base.columns import Column
from cxr.base.errors import UserError
from cxr.base.tables import read_table, write_rows
from cxr.reporting.review import page
from cxr.reporting.review.sheets import read_answers
from cxr.reporting.review.units import order_items

ITEMS = page.ITEM_COLUMNS | {"unit": Column(pl.String, "Unit that is judged.")}
ANSWERS = {
    "expert": Column(pl.String, "Expert."),
    "unit": Column(pl.String, "Unit that was judged."),
    "question": Column(pl.String, "Question of the form."),
    "answer": Column(pl.String, "The expert's answer."),
    "note": Column(pl.String, "The expert's note on the item."),
    "seconds": Column(pl.Int64, "Time for which the item was shown.", "s"),
}


def run_pages(
    *,
    units: str,
    pages: list[str],
    items_table: str,
    experts: list[str],
    form: str,
    seed: int,
    fewer: str,
    label_overrides: Mapping[str, Mapping[str, str]] | None = None,
    synthetic: bool = False,
) -> None:
    """Write one page per expert, in the order of ``experts``, and the organiser's table of items.

    ``units`` is a table with the columns :data:`cxr.base.review_units.REVIEW_UNITS`. Every expert gets every unit, in
    an individual order. ``form`` names a form of resources/review/forms.yaml, and ``label_overrides``, {question:
    {value: label}}, replaces or adds answers. ``fewer``: advice in the error about too large a page, on how to
    get fewer units.
    """
    table = read_table(units)
    if not len(table):
        raise UserError(f"{units} has no row, so there is nothing to judge: check the stage that wrote it")
    row_by_unit = {row["unit"]: row for row in table.iter_rows(named=True)}
    items = {expert: order_items(list(row_by_unit), expert, seed, lambda unit: (unit,)) for expert in experts}
    rows = page.write_pages(
        items, pages, page.read_form(form, label_overrides), row_by_unit.__getitem__, remedy=fewer, synthetic=synthetic
    )
    write_rows(items_table, rows, ITEMS)


def run_answers(
    *,
    items_table: str,
    answers: str,
    form: str,
    setting: str,
    label_overrides: Mapping[str, Mapping[str, str]] | None = None,
    sheets: list[str] | None = None,
) -> None:
    """Write one row per expert, unit and question of the ``sheets``. Raises UserError for an incomplete sheet.

    ``form`` and ``label_overrides`` are those with which :func:`run_pages` wrote the pages. ``setting`` is the settings
    key that names the sheets, for errors.
    """
    form_of_pages = page.read_form(form, label_overrides)
    rows = [
        (expert, unit, question, value, answer.note, answer.seconds)
        for expert, _, unit, answer in read_answers(items_table, sheets or [], form_of_pages, setting)
        for question, value in answer.values.items()
    ]
    write_rows(answers, rows, ANSWERS)
