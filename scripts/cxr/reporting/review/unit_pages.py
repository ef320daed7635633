"""Make a page per expert from any system's table of units, and read the filled sheets into one table."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.tables import read_table, write_table
from cxr.reporting.review import page
from cxr.reporting.review.form import read_form
from cxr.reporting.review.sheets import dealt_pages, read_sheets
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


@dataclass(frozen=True)
class UnitPagesOptions:
    """form: name in resources/review/forms.yaml; fewer: the remedy for a page that is too large.

    named: {question: {value: label}} of answers that replace or extend the form's; synthetic: whether the cohort is
    the embedded one.
    """

    experts: list[str]
    form: str
    seed: int
    fewer: str
    named: dict[str, dict[str, str]] = field(default_factory=dict)
    synthetic: bool = False


@dataclass(frozen=True)
class UnitAnswersOptions:
    """form, named: as for the pages; setting: the settings key of the sheets."""

    form: str
    setting: str
    named: dict[str, dict[str, str]] = field(default_factory=dict)
    synthetic: bool = False


@dataclass(frozen=True)
class _Unit:
    name: str
    view: page.ItemView

    @property
    def key(self) -> tuple[str, ...]:
        return (self.name,)


def run_pages(*, units: str, pages: list[str], items_table: str, options: UnitPagesOptions) -> None:
    """Write one page per expert, in the order of ``options.experts``, and the organiser's table of items.

    ``units``: a table with the columns :data:`cxr.base.review_units.REVIEW_UNITS`. Every expert gets every unit, in
    an individual order.
    """
    table = read_table(units)
    if not len(table):
        raise UserError(f"{units} holds no unit, so there is nothing to judge")
    form, all_units = read_form(options.form, options.named), _read_units(table)
    # an image of several units is on the page once
    pictures = {_image_name(picture): picture for picture in table["picture"]}
    masks, second_masks = (dict(zip(table["unit"], table[name], strict=True)) for name in ("mask", "also"))
    rows = []
    for expert, path in zip(options.experts, pages, strict=True):
        dealt = order_items(all_units, expert, options.seed)
        on_page = [(code, unit.view) for code, unit in dealt]
        data, urls = page.page_data(
            expert,
            form,
            on_page,
            lambda name: ("image/png", pictures[name]),
            masks.__getitem__,
            second_masks.__getitem__,
        )
        page.write_page(path, form, data, urls, options.fewer, options.synthetic)
        rows += [(expert, data["page"], at, code, unit.name) for at, (code, unit) in enumerate(dealt, start=1)]
    write_table(items_table, pl.DataFrame(rows, schema=schema(ITEMS), orient="row"), ITEMS)


def run_answers(
    *, items_table: str, answers: str, options: UnitAnswersOptions, sheets: list[str] | None = None
) -> None:
    """Write one row per expert, unit and question of the filled ``sheets``. Raises UserError for an incomplete one."""
    order = read_table(items_table).sort("expert", "position")
    answers_by_expert = read_sheets(
        sheets or [], dealt_pages(order), read_form(options.form, options.named), options.setting
    )
    rows = [
        (expert, unit, question, value, answers_by_expert[expert][item].note, answers_by_expert[expert][item].seconds)
        for expert, item, unit in order.select("expert", "item", "unit").iter_rows()
        for question, value in answers_by_expert[expert][item].values.items()
    ]
    write_table(answers, pl.DataFrame(rows, schema=schema(ANSWERS), orient="row"), ANSWERS)


def _image_name(picture: bytes) -> str:
    return hashlib.blake2b(picture, digest_size=16).hexdigest()


def _read_units(table: pl.DataFrame) -> Sequence[_Unit]:
    return [
        _Unit(
            row["unit"],
            page.ItemView(
                image=_image_name(row["picture"]),
                mask=None if row["mask"] is None else row["unit"],
                question=row["question"],
                hint=row["hint"],
                facts={f"fact-{number}": tuple(fact) for number, fact in enumerate(row["facts"])},
                head=row["head"],
                text=row["text"],
                alt=f"{'Chest radiograph' if row['sides'] else 'Image'}. {row['question']}",
                second_mask=None if row["also"] is None else row["unit"],
                sides=row["sides"],
            ),
        )
        for row in table.iter_rows(named=True)
    ]
