"""Write one expert's page: a single HTML file that needs no server and no network.

The file embeds the style, the scripts, and the images and masks as base64 of PNG (or JPEG). All data are in elements
that a browser does not run, and the script shows them as text. The page's content security policy blocks every other
script and all requests.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column
from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import csp_hash, data_url, escape_json_for_script
from cxr.reporting.review.form import Form

RESOURCE_FILES = ("review/page.html", "review/page.css", "review/view.js", "review/sheet.js", "review/page.js")
SCRIPTS = ("sheet.js", "view.js", "page.js")
"""In the order of the page."""
ITEM_COLUMNS = {
    "expert": Column(pl.String, "Expert."),
    "page": Column(pl.String, "Digest of the expert's page."),
    "position": Column(pl.Int64, "Position on the page, from 1."),
    "item": Column(pl.String, "Code on the page and in the sheet."),
}
"""Columns of the organiser's table of items, without the unit."""


@dataclass(frozen=True)
class ItemView:
    """What an expert sees of one item.

    ``image``, ``mask``: their names, which the page does not show; ``facts``: {id on the page: (label, value)};
    ``head`` and ``text``: a text beside the image and its heading, or ""; ``alt``: a description of the image;
    ``second_mask``: name of a mask that a key shows; ``sides``: whether the image's left is the patient's right.
    """

    image: str
    mask: str | None
    question: str
    hint: str
    facts: dict[str, tuple[str, str]]
    head: str
    text: str
    alt: str
    second_mask: str | None = None
    sides: bool = True


def page_data(
    expert: str,
    form: Form,
    items: Sequence[tuple[str, ItemView]],
    encoded_image: Callable[[str], tuple[str, bytes]],
    encoded_mask: Callable[[str], bytes],
    encoded_second_mask: Callable[[str], bytes] | None = None,
) -> tuple[dict, list[str]]:
    """Return the content of a page: its data, and its images as ``data:`` URLs in the order of their first items.

    ``encoded_image`` returns the media type and bytes of an image, ``encoded_mask`` and ``encoded_second_mask`` return
    PNG bytes. The page contains no ids. Its entry ``page``, also in the sheet, is a digest of all that the expert sees.
    """
    places: dict[str, int] = {}
    pictures, rows = [], []
    for code, view in items:
        if view.image not in places:
            places[view.image] = len(pictures)
            pictures.append(data_url(*encoded_image(view.image)))
        rows.append(
            {
                "item": code,
                "picture": places[view.image],
                "mask": data_url("image/png", encoded_mask(view.mask)) if view.mask is not None else None,
                "question": view.question,
                "hint": view.hint,
                "facts": [[name, *fact] for name, fact in view.facts.items()],
                "head": view.head,
                "text": view.text,
                "alt": view.alt,
            }
            | (
                {}
                if view.second_mask is None or encoded_second_mask is None
                else {"also": data_url("image/png", encoded_second_mask(view.second_mask))}
            )
            | ({} if view.sides else {"sides": False})
        )
    digest = hashlib.sha256(json.dumps([expert, form.to_data(), rows]).encode())
    for url in pictures:
        digest.update(hashlib.sha256(url.encode()).digest())
    return {"page": "p" + digest.hexdigest()[:16], "expert": expert, "form": form.to_data(), "items": rows}, pictures


def write_page(
    path: str | Path, form: Form, data: dict, pictures: Sequence[str], remedy: str, synthetic: bool = False
) -> None:
    """Write the page. On a blind page all images have the same length, so that sizes do not reveal their source.

    Raises UserError, which ends with the ``remedy``, if the page would be too large for a browser.
    """
    padded_length = max(map(len, pictures), default=0) if form.blind else 0
    size = sum(max(len(url), padded_length) for url in pictures)
    if size > MAX_BYTES:
        raise UserError(
            f"the page of expert {data['expert']} would contain {size >> 20} MB of images, too many for a browser: "
            f"{remedy}"
        )
    folder = RESOURCES / "review"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = "(() => {\n'use strict';\n" + "\n".join(
        (folder / name).read_text(encoding="utf-8") for name in SCRIPTS
    ) + "})();\n"  # fmt: skip
    template = Template((folder / "page.html").read_text(encoding="utf-8"))
    blocks = "\n".join(
        f'<script type="text/plain" id="picture-{n}">{url:<{padded_length}}</script>' for n, url in enumerate(pictures)
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
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


SYNTHETIC = " (the embedded cohort: synthetic images and reports)"
MAX_BYTES = 400 << 20
"""Chromium cannot hold a string of more than 512 MB."""
