"""Read and check the experts' completed sheets. An error names the file, the line and the column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxr.base.errors import UserError
from cxr.base.tables import read_table, unguard_cell
from cxr.base.user_tables import read_sheet
from cxr.reporting.review.page import Form


@dataclass(frozen=True)
class Answer:
    """One expert's answer to one item. ``values`` is {question: value of the chosen answer}."""

    values: Mapping[str, str]
    note: str
    seconds: int | None


def read_answers(
    items_table: str, sheets: Sequence[str], form: Form, setting: str
) -> Iterator[tuple[str, str, Any, Answer]]:
    """Yield (expert, item code, unit, answer) of each item, sorted by expert and position on the page.

    ``items_table`` has the columns :data:`page.ITEM_COLUMNS` and ``unit``. ``setting`` is the settings key that names
    the ``sheets``. Raises UserError for an incomplete sheet.
    """
    items = read_table(items_table).sort("expert", "position")
    page_by_expert = {
        expert: (part["page"][0], part["item"].to_list())
        for (expert,), part in items.group_by("expert", maintain_order=True)
    }
    answers = read_sheets(sheets, page_by_expert, form, setting)
    for expert, item, unit in items.select("expert", "item", "unit").iter_rows():
        yield expert, item, unit, answers[expert][item]


def read_sheets(
    paths: Sequence[str], page_by_expert: Mapping[str, tuple[str, Sequence[str]]], form: Form, setting: str
) -> dict[str, dict[str, Answer]]:
    """Return {expert: {item code: answer}} from one complete sheet of every expert with a page.

    ``page_by_expert`` is {expert: (digest of the page, its item codes in order)}. ``setting`` is the settings key that
    names the sheets. Raises UserError if a sheet is missing, incomplete, repeated or of another page.
    """
    if not paths:
        raise UserError(f"{setting} is empty: give the experts' filled sheets, or the folder that holds them")
    expert_of = {page: expert for expert, (page, _) in page_by_expert.items()}
    answers_by_expert: dict[str, dict[str, Answer]] = {}
    origin: dict[str, str] = {}
    for path in paths:
        sheet = read_sheet(path, setting, form.columns, ids=("item", "page"), words=("item", "page"))
        sheet.require(form.columns, "give the file that the page saved")
        rows = list(sheet.records())
        if not rows:
            raise UserError(f"{setting}: {path} contains no item: give the file that the page saved")
        line, first = rows[0]
        page = first["page"]
        if page not in expert_of:
            raise UserError(
                f"{path}, line {line}, column page: {page!r} is not a page of this review: give sheets saved from it"
            )
        expert = expert_of[page]
        if expert in answers_by_expert:
            raise UserError(f"{path} and {origin[expert]} are both sheets of expert {expert}: give one of them")
        answers_by_expert[expert] = _parse_answers(path, rows, *page_by_expert[expert], form)
        origin[expert] = path
    if missing := [name for name, (_, items) in page_by_expert.items() if items and name not in answers_by_expert]:
        raise UserError(f"{setting} has no sheet of expert {missing[0]}: add the file of this expert")
    return answers_by_expert


def _parse_answers(
    path: str, rows: Sequence[tuple[int, Mapping[str, str]]], page: str, items: Sequence[str], form: Form
) -> dict[str, Answer]:
    """Return {item code: answer} of a sheet. Raises UserError unless the sheet has each item exactly once."""
    item_codes, answers, at = set(items), {}, {}
    for line, row in rows:
        item, where = row["item"], f"{path}, line {line}, column"
        if row["page"] != page:
            raise UserError(f"{where} page: {row['page']!r} is not {page!r} as in the first row: give a file per sheet")
        if item not in item_codes:
            raise UserError(f"{where} item: {item!r} is not an item of this page: remove the line or correct it")
        if item in answers:
            raise UserError(f"{where} item: {item!r} is in line {at[item]} too: remove one of them")
        values = {name: row[name].casefold() for name in form.values_by_question}
        for name, known_values in form.values_by_question.items():
            if not values[name]:
                raise UserError(f"{where} {name} is empty: judge item {item} and save the sheet again")
            if values[name] not in known_values:
                raise UserError(
                    f"{where} {name}: {row[name]!r} is neither {' nor '.join(map(repr, known_values))}: correct it"
                )
        seconds = row["seconds"]
        if seconds and not seconds.isdecimal():
            raise UserError(f"{where} seconds: {seconds!r} is not a whole number: correct it or empty the cell")
        answers[item] = Answer(
            values, unguard_cell(row["note"].replace("\r\n", "\n")), int(seconds) if seconds else None
        )
        at[item] = line
    if missing := [item for item in items if item not in answers]:
        raise UserError(
            f"{path} ends at line {rows[-1][0]} and lacks {len(missing)} of {len(items)} items, the first of which is "
            f"{missing[0]}: judge these items and save the sheet again"
        )
    return answers
