"""Searching every byte of a folder for planted texts, in any encoding and inside every container that we write."""

import base64
import gzip
import html
import io
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  (its import registers the codecs)
import numpy as np
import pyarrow.parquet as pq
from PIL import Image

IN_PAGE = re.compile(rb"data:image/[a-z+]+;base64,([A-Za-z0-9+/=\s]+)")
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
ESCAPED_BYTES = re.compile(r"%([0-9a-fA-F]{2})")


def find_texts(folder: Path, texts: Iterable[str], *exempt: str) -> list[tuple[str, str]]:
    """Return (file, text) of every text in a file below ``folder``, ignoring case and Unicode form.

    Files are read as UTF-8, UTF-16 and Latin-1, with and without escapes of JSON, HTML and URLs; HDF5, Parquet, gzip,
    ZIP, PNG and images inside pages are unpacked. ``exempt``: paths below ``folder`` that are ignored. A text of
    digits counts only if no digit precedes or follows it.
    """
    forms = {text: set(_forms_of(text)) for text in texts}
    first_look = _first_look(forms)
    hits = set()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if any(name.is_relative_to(part) for part in exempt):
            continue
        pieces = [name.as_posix().encode(), *unpack(path.read_bytes())]
        looked_at = (piece for piece in pieces if first_look.search(piece.lower()))
        hits |= {(name.as_posix(), text) for piece in looked_at for text in _texts_in(piece, forms)}
    return sorted(hits)


def _forms_of(text: str) -> Iterator[str]:
    yield _folded(text)
    plain = text
    for letter, spelling in {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}.items():
        plain = plain.replace(letter, spelling)
    yield _folded(plain)
    yield _folded("".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign)))


def _first_look(forms: dict[str, set[str]]) -> re.Pattern:
    """Return a pattern for bytes in small letters that matches all data in which one of the texts can be.

    It is the longest run of ASCII letters or digits of each form, in UTF-8 and in UTF-16: every escape leaves that.
    """
    runs = {max(re.findall(r"[a-z0-9]*", form), key=len).encode() for spellings in forms.values() for form in spellings}
    wide = {b"\0".join(run[at : at + 1] for at in range(len(run))) for run in runs}
    return re.compile(b"|".join(re.escape(run) for run in sorted(runs | wide)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _texts_in(data: bytes, forms: dict[str, set[str]]) -> Iterator[str]:
    views = [_folded(view) for view in _views(data)]
    for text, spellings in forms.items():
        if any(_holds(view, spelling) for view in views for spelling in spellings):
            yield text


def _holds(view: str, text: str) -> bool:
    place = view.find(text)
    while place >= 0:
        around = view[max(0, place - 1) : place] + view[place + len(text) : place + len(text) + 1]
        if not text[:1].isdigit() or not any(sign.isdigit() for sign in around):
            return True
        place = view.find(text, place + 1)
    return False


def _views(data: bytes) -> Iterator[str]:
    """Yield the data as text, in each way in which it can be read."""
    text = data.decode("utf-8", "ignore")
    yield text
    if any(sign >= 0x80 for sign in data[:1_000_000]):
        yield data.decode("latin-1")
    for start in (0, 1):  # a text may begin at an odd byte
        for order in ("utf-16-le", "utf-16-be"):
            yield data[start : start + (len(data) - start) // 2 * 2].decode(order, "ignore")
    if "\\u" in text:
        yield ESCAPED.sub(lambda sign: chr(int(sign[1], 16)), text)
    if "&" in text:
        yield html.unescape(text)
    if "%" in text:
        escaped = ESCAPED_BYTES.sub(lambda sign: chr(int(sign[1], 16)), text)
        yield escaped.encode("latin-1", "ignore").decode("utf-8", "ignore")


def unpack(data: bytes) -> Iterator[bytes]:
    """Yield a file's bytes, and those of everything packed in it."""
    yield data
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        yield from _hdf5(data)
    elif data[:4] == b"PAR1":
        yield from _parquet(data)
    elif data[:2] == b"\x1f\x8b":
        yield from unpack(gzip.decompress(data))
    elif data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from unpack(archive.read(name))
    elif data[:8] == b"\x89PNG\r\n\x1a\n" or data[:3] == b"\xff\xd8\xff":
        yield from _image(data)
    for coded in IN_PAGE.findall(data):
        yield from unpack(base64.b64decode(coded))


def _hdf5(data: bytes) -> Iterator[bytes]:
    def texts(name: str, node: h5py.Group | h5py.Dataset) -> None:
        pieces.append(name.encode())
        pieces.extend(_bytes_of(value) for value in node.attrs.values())
        if isinstance(node, h5py.Dataset) and node.dtype.kind in "SO":
            pieces.append(_bytes_of(node[()]))

    pieces: list[bytes] = []
    with h5py.File(io.BytesIO(data), "r") as file:
        pieces.extend(_bytes_of(value) for value in file.attrs.values())
        file.visititems(texts)
    yield b"\n".join(pieces)


def _bytes_of(value: object) -> bytes:
    parts = np.atleast_1d(np.asarray(value)).ravel().tolist()
    return b"\n".join(part if isinstance(part, bytes) else str(part).encode() for part in parts)


def _parquet(data: bytes) -> Iterator[bytes]:
    table = pq.read_table(io.BytesIO(data))
    metadata = table.schema.metadata or {}
    yield b"\n".join(part for pair in metadata.items() for part in pair)
    yield "\n".join(str(row) for row in table.to_pylist()).encode()


def _image(data: bytes) -> Iterator[bytes]:
    with Image.open(io.BytesIO(data)) as image:
        yield "\n".join(f"{name} {value}" for name, value in image.info.items()).encode()
        yield "\n".join(str(value) for value in image.getexif().values()).encode()
    for packed in re.findall(rb"zTXt[^\0]*\0\0(.*)", data, re.DOTALL):
        yield zlib.decompressobj().decompress(packed)
