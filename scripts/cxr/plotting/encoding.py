"""Encode images as file contents, and write HTML pages that need neither server nor network."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

import cv2
import numpy as np

from cxr.base.atomic import atomic_file

MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg"}


def encode_image(ending: str, image: np.ndarray, parameters: Sequence[int] = ()) -> bytes:
    """Encode an image, uint8 (H, W) or (H, W, 3: blue, green, red), in the format of a file ending such as ``.png``,
    with OpenCV's ``parameters``. Raises ValueError for an image that cannot be encoded."""
    done, data = cv2.imencode(ending, np.ascontiguousarray(image), list(parameters))
    if not done:
        raise ValueError(f"OpenCV cannot encode an image of shape {image.shape} and type {image.dtype} as {ending}")
    return data.tobytes()


def encode_grey_image(image: np.ndarray, jpeg_quality: int) -> tuple[str, bytes]:
    """Encode a grey image, uint8 (H, W); return its media type and bytes. Quality 0 gives PNG, which is lossless."""
    if jpeg_quality:
        return "image/jpeg", encode_image(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality])
    return "image/png", encode_image(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])


def encode_mask(mask: np.ndarray) -> bytes:
    """Encode a mask, bool (H, W), as PNG with one bit per pixel."""
    parameters = [cv2.IMWRITE_PNG_BILEVEL, 1, cv2.IMWRITE_PNG_COMPRESSION, 9]
    return encode_image(".png", mask.astype(np.uint8) * 255, parameters)


def data_url(media_type: str, data: bytes) -> str:
    """Return a ``data:`` URL that holds the bytes."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def image_file_url(path: str | Path) -> str:
    """Return a ``data:`` URL that holds a PNG or JPEG file."""
    return data_url(MEDIA_TYPES[Path(path).suffix], Path(path).read_bytes())


def escape_json_for_script(data: dict) -> str:
    """Return ``data`` as JSON that is safe inside a script element, because a browser finds no markup in it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def csp_hash(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_offline_page(
    path: str | Path, folder: Path, scripts: Sequence[str], *, title: str, data: dict, **values: str
) -> None:
    """Write a page as one file, whose content security policy blocks every other script and all requests.

    ``folder`` contains ``page.html``, ``page.css`` and the ``scripts``, which run in the given order. ``data`` is the
    scripts' input, stored as JSON. ``values`` has the HTML that replaces other names in ``page.html``.
    """
    files = ("page.html", "page.css", *scripts)
    page, style, *codes = ((folder / name).read_text(encoding="utf-8") for name in files)
    script = "(() => {\n'use strict';\n" + "\n".join(codes) + "})();\n"
    values |= {"title": escape(title), "style": style, "style_hash": csp_hash(style), "script": script}
    values |= {"script_hash": csp_hash(script), "data": escape_json_for_script(data)}
    with atomic_file(path) as temporary:
        temporary.write_text(Template(page).substitute(values), encoding="utf-8", newline="\n")
