"""Write one expert's page: a single HTML file that needs no server and no network.

The file embeds the style and the scripts, and the pictures and masks as base64 of PNG (or JPEG). All data are in blocks
that a browser does not run, and the script shows them as text. The page's content security policy lets no other script
run and nothing be fetched.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import polars as pl

from cxr.base.atomic import atomic
from cxr.base.columns import Column
from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import csp_hash, data_url, escape_json_for_script
from cxr.reporting.review.form import Form

RESOURCE_FILES = ("review/page.html", "review/page.css", "review/view.js", "review/sheet.js", "review/page.js")
SCRIPTS = ("sheet.js", "view.js", "page.js")
"""In their order on the page."""
DEALT = {
    "expert": Column(pl.String, "Expert."),
    "page": Column(pl.String, "Digest of the expert's page."),
    "position": Column(pl.Int64, "Place on the page, from 1."),
    "item": Column(pl.String, "Code on the page and in the sheet."),
}
"""Columns of the organiser's table of items, which a form's own pages extend by the unit."""


@dataclass(frozen=True)
class Shown:
    """What an expert sees of one item.

    ``picture``, ``mask``: names of the pictures, not shown; ``facts``: {id on the page: (label, value)}; ``head`` and
    ``text``: a text beside the image and its heading, or empty; ``alt``: the image in words; ``also``: name of a mask
    that a key shows; ``sides``: whether the image's left is the patient's right.
    """

    picture: str
    mask: str | None
    question: str
    hint: str
    facts: dict[str, tuple[str, str]]
    head: str
    text: str
    alt: str
    also: str | None = None
    sides: bool = True


def page_data(
    expert: str,
    form: Form,
    items: Sequence[tuple[str, Shown]],
    picture: Callable[[str], tuple[str, bytes]],
    mask: Callable[[str], bytes],
    second_mask: Callable[[str], bytes] | None = None,
) -> tuple[dict, list[str]]:
    """Return the content of a page: its data, and its pictures as data URLs in the order of their first items.

    ``picture`` returns the media type and bytes of an image, ``mask`` and ``second_mask`` the bytes of a mask's PNG.
    The page holds no ids. The entry ``page`` is a digest of everything that the expert sees; the sheet holds it too.
    """
    places: dict[str, int] = {}
    pictures, rows = [], []
    for code, view in items:
        if view.picture not in places:
            places[view.picture] = len(pictures)
            pictures.append(data_url(*picture(view.picture)))
        rows.append(
            {
                "item": code,
                "picture": places[view.picture],
                "mask": data_url("image/png", mask(view.mask)) if view.mask is not None else None,
                "question": view.question,
                "hint": view.hint,
                "facts": [[name, *fact] for name, fact in view.facts.items()],
                "head": view.head,
                "text": view.text,
                "alt": view.alt,
            }
            | (
                {}
                if view.also is None or second_mask is None
                else {"also": data_url("image/png", second_mask(view.also))}
            )
            | ({} if view.sides else {"sides": False})
        )
    digest = hashlib.sha256(json.dumps([expert, form.shown(), rows]).encode())
    for url in pictures:
        digest.update(hashlib.sha256(url.encode()).digest())
    return {"page": "p" + digest.hexdigest()[:16], "expert": expert, "form": form.shown(), "items": rows}, pictures


def write_page(
    path: str | Path, form: Form, data: dict, pictures: Sequence[str], remedy: str, synthetic: bool = False
) -> None:
    """Write the page. On a blind one all pictures take the same space, so that a size tells nothing of a source.

    Raises UserError, which ends with the ``remedy``, if the page would be larger than a browser can hold.
    """
    least = max(map(len, pictures), default=0) if form.blind else 0
    size = sum(max(len(url), least) for url in pictures)
    if size > MAX_BYTES:
        raise UserError(
            f"the page of expert {data['expert']} would hold {size >> 20} MB of pictures, more than browsers can open: "
            f"{remedy}"
        )
    folder = RESOURCES / "review"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = "(() => {\n'use strict';\n" + "\n".join(
        (folder / name).read_text(encoding="utf-8") for name in SCRIPTS
    ) + "})();\n"  # fmt: skip
    template = Template((folder / "page.html").read_text(encoding="utf-8"))
    blocks = "\n".join(
        f'<script type="text/plain" id="picture-{n}">{url:<{least}}</script>' for n, url in enumerate(pictures)
    )
    text = template.substitute(
        title=escape(form.title + SYNTHETIC * synthetic),
        expert=escape(data["expert"]),
        style=style,
        style_hash=csp_hash(style),
        script=script,
        script_hash=csp_hash(script),
        data=escape_json_for_script(data),
        pictures=blocks,
    )
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


SYNTHETIC = " (the embedded cohort: synthetic images and reports)"
MAX_BYTES = 400 << 20
"""Chromium cannot hold a string of more than 512 MB."""
