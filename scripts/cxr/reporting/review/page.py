"""Write the experts' pages: each is a single HTML file with a form, which needs no server and no network.

The file embeds the style, the scripts, and the images and masks as base64 of PNG (or JPEG). All data are in elements
that a browser does not run, and the scripts show them only as text.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import ascii_lowercase
from typing import TypeVar

import polars as pl
import yaml

from cxr.base.columns import Column
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import data_url, write_offline_page

T = TypeVar("T")
RESOURCE_FILES = (
    "review/forms.yaml", "review/page.html", "review/page.css", "review/view.js", "review/sheet.js", "review/page.js",
)  # fmt: skip
FORMS = RESOURCE_FILES[0]
SCRIPTS = ("sheet.js", "view.js", "page.js")
"""Scripts in the order in which the page includes them."""
ITEM_COLUMNS = {
    "expert": Column(pl.String, "Expert."),
    "page": Column(pl.String, "Digest of the expert's page."),
    "position": Column(pl.Int64, "Position of the item on the page, from 1."),
    "item": Column(pl.String, "Code of the item on the page and in the sheet."),
}
"""Columns of the organiser's table of items, except the unit."""
SYNTHETIC = " (the embedded cohort: synthetic images and reports)"
PNG_MAGIC = b"\x89PNG"
MAX_BYTES = 400 << 20
"""Maximum total size of a page's images. Chromium cannot load a string of more than 512 MB."""
PAGE_KEYS = frozenset("ujmocns")
"""Keyboard keys that control the page, so that no answer may use them."""
CHOICE = dict.fromkeys(("value", "label", "key", "id", "mark"), "")
"""An answer: its value in the sheet, its label, keyboard key and mark on the page, and the HTML id of its button."""


@dataclass(frozen=True)
class Form:
    """The heading of a page and its questions.

    ``sheet`` begins the file name of a saved sheet. ``blind`` is whether the source of an item must stay hidden. Each
    of ``questions`` has ``name`` (column in the sheet), ``text`` (heading of the answers) and ``choices`` (answers with
    the fields of :data:`CHOICE`). ``outline`` is whether masks are first shown as outlines.
    """

    title: str
    sheet: str
    blind: bool
    questions: Sequence[dict]
    outline: bool = False

    @property
    def values_by_question(self) -> dict[str, list[str]]:
        """{question: values of the possible answers in the sheet}."""
        return {row["name"]: [choice["value"] for choice in row["choices"]] for row in self.questions}

    @property
    def columns(self) -> tuple[str, ...]:
        return ("item", *self.values_by_question, "note", "seconds", "page")

    def to_data(self) -> dict:
        """Return the form as data for the page's scripts."""
        form_data = {"sheet": self.sheet, "questions": self.questions}
        return form_data | ({"outline": True} if self.outline else {})


def read_form(name: str, label_overrides: Mapping[str, Mapping[str, str]] | None = None) -> Form:
    """Read the form ``name`` from resources/review/forms.yaml.

    ``label_overrides`` is {question: {value: label}} with labels that replace the form's. A value that the form lacks
    becomes a new answer after the form's answers, with an unused letter as its key if there is one.
    """
    form = Form(**yaml.safe_load((RESOURCES / FORMS).read_text(encoding="utf-8"))[name])
    used_keys = {choice["key"] for question in form.questions for choice in question["choices"]}
    free_keys = (letter for letter in ascii_lowercase if letter not in used_keys | PAGE_KEYS)
    for question in form.questions:
        choices = {choice["value"]: CHOICE | choice for choice in question["choices"]}
        for value, label in (label_overrides or {}).get(question["name"], {}).items():
            choice = choices.get(value) or CHOICE | {"value": value, "key": next(free_keys, "")}
            choices[value] = choice | {"label": label}
        question["choices"] = list(choices.values())
    return form


def page_data(expert: str, form: Form, items: Sequence[tuple[str, Mapping]]) -> tuple[dict, list[str]]:
    """Return the content of a page: its data, and its images as ``data:`` URLs in the order of their first items.

    ``items`` are (item code, row of :data:`cxr.base.review_units.REVIEW_UNITS`). The picture of a row is a PNG or a
    JPEG. An image of several items is on the page once. The page contains no ids. The entry ``page`` of the data is a
    digest of all that the expert sees, which a saved sheet repeats.
    """
    places: dict[bytes, int] = {}
    pictures, rows = [], []
    for code, unit in items:
        if unit["picture"] not in places:
            places[unit["picture"]] = len(pictures)
            media_type = "image/png" if unit["picture"].startswith(PNG_MAGIC) else "image/jpeg"
            pictures.append(data_url(media_type, unit["picture"]))
        row = {
            "item": code,
            "picture": places[unit["picture"]],
            "mask": data_url("image/png", unit["mask"]) if unit["mask"] is not None else None,
            "question": unit["question"],
            "hint": unit["hint"],
            "facts": [[f"fact-{number}", *fact] for number, fact in enumerate(unit["facts"])],
            "head": unit["head"],
            "text": unit["text"],
            "alt": f"{'Chest radiograph' if unit['sides'] else 'Image'}. {unit['question']}",
        }
        if unit["also"] is not None:
            row["also"] = data_url("image/png", unit["also"])
        if not unit["sides"]:
            row["sides"] = False
        rows.append(row)
    digest = hashlib.sha256(json.dumps([expert, form.to_data(), rows]).encode())
    for url in pictures:
        digest.update(hashlib.sha256(url.encode()).digest())
    return {"page": "p" + digest.hexdigest()[:16], "expert": expert, "form": form.to_data(), "items": rows}, pictures


def write_pages(
    dealt: Mapping[str, Sequence[tuple[str, T]]],
    paths: Sequence[str],
    form: Form,
    row_of: Callable[[T], Mapping],
    *,
    remedy: str,
    synthetic: bool,
) -> Iterator[tuple[str, str, int, str, T]]:
    """Write a page per expert, and yield (expert, digest of the page, position, item code, unit) of each item.
    ``dealt`` is {expert: [(item code, unit)]}. ``row_of`` converts a unit to a row as in :func:`page_data`. ``remedy``
    ends the error about a page that is too large."""
    for (expert, items), path in zip(dealt.items(), paths, strict=True):
        data, pictures = page_data(expert, form, [(code, row_of(unit)) for code, unit in items])
        write_page(path, form, data, pictures, remedy, synthetic)
        size = Path(path).stat().st_size / 1e6
        log.info("page of expert %s: %d items, %d images, %.1f MB", expert, len(items), len(pictures), size)
        for position, (code, unit) in enumerate(items, start=1):
            yield expert, data["page"], position, code, unit


def write_page(
    path: str | Path, form: Form, data: dict, pictures: Sequence[str], remedy: str, synthetic: bool = False
) -> None:
    """Write a page. On a blind page, all images are padded to one length, so that sizes do not reveal their source.
    If the page would be too large for a browser, raises UserError, whose message ends with the ``remedy``."""
    padded_length = max(map(len, pictures), default=0) if form.blind else 0
    size = sum(max(len(url), padded_length) for url in pictures)
    if size > MAX_BYTES:
        raise UserError(
            f"the page of expert {data['expert']} would contain {size >> 20} MB of images, too much for a browser: "
            f"{remedy}"
        )
    blocks = "\n".join(
        f'<script type="text/plain" id="picture-{n}">{url:<{padded_length}}</script>' for n, url in enumerate(pictures)
    )
    title, expert = form.title + SYNTHETIC * synthetic, escape(data["expert"])
    write_offline_page(path, RESOURCES / "review", SCRIPTS, title=title, data=data, expert=expert, pictures=blocks)
