"""Finding text that is burned into an image, and blacking it out.

The text detector and reader are from RapidOCR (PP-OCRv6, Apache 2.0), whose package contains the models. Markers that
are common on radiographs (L, R, AP, ERECT, PORTABLE) are not blacked out.
"""

import logging
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.errors import count_phrase
from cxr.base.faults import Broken
from cxr.base.vocabulary import BLACKED_OUT
from cxr.dicom.files import Rejected

KEEP, BLACK_OUT, EXCLUDE = "keep", "black_out", "exclude"
REASON = "burned_in_text"

_SIDE = 768  # longest side of the detector's input, pixels; letters of 0.8 % of the side are found
_LEAST_SCORE = 0.6  # minimum confidence of the reader; bones that look like letters have a lower confidence
_LEAST_SIGNS = 3  # minimum number of letters and digits in text that may identify a person
_ROUNDS = 4  # number of times that an image is read again before it is rejected
_MARGIN = 0.25  # margin around a piece of text that is blacked out too, as a fraction of its height
_SIMILAR = 0.75  # minimum similarity of a word to a marker to count as the marker, because markers may be blurred
_MARKER_WORDS = """
ap bed bedside bett cart ccu chair chest clinostatismo cm cr dcha decub decubitus dei der derecha destra dir
down dr droite dx ed ei er erect esq exp expiration gauche grid icu in insp inspiration itu izda izq
izquierda kv kvp l lat lateral left li liegend line lines links lordotic lt ma mas micu mm mobile nicu
oblique ortostatismo out pa port portable post prone r re rechts right rt seduto semi semierect semiupright
sicu sin sinistra sitting sitzend standing stehend stretcher supine sx table thorax torace up upright view
ward wheelchair with without
"""
_MARKERS = frozenset(_MARKER_WORDS.split())  # words of markers on radiographs, in lower case
_LONG_MARKERS = sorted(word for word in _MARKERS if len(word) > 3)


class Piece(NamedTuple):
    """A piece of text: box (x1, y1, x2, y2) in image pixels, the text, and the reader's confidence."""

    box: tuple[int, int, int, int]
    text: str
    score: float


def clean_image(grey: np.ndarray, mode: str) -> tuple[np.ndarray, int]:
    """Remove text that may identify a person; return the image and the number of pieces of text removed.

    ``grey``: uint8 (rows, columns[, 3]). ``mode``: ``keep`` changes nothing. ``black_out`` sets the boxes of text to 0
    and searches again; it raises :class:`Rejected` if text is left after several rounds. ``exclude`` raises
    :class:`Rejected` instead of removing text.
    """
    if mode == KEEP:
        return grey, 0
    number = 0
    for _ in range(_ROUNDS + 1):
        pieces = private_text(grey)
        number += len(pieces)
        if not pieces:
            return grey, number
        if mode == EXCLUDE:
            raise Rejected(REASON, f"{count_phrase(number, 'piece', 'pieces')} of text; privacy.burned_in is exclude")
        grey = grey.copy()
        for piece in pieces:
            x1, y1, x2, y2 = piece.box
            grey[y1:y2, x1:x2] = 0
    raise Rejected(REASON, f"text is left after {_ROUNDS} rounds of blacking out")


def describe_blackout(pieces: int) -> tuple[str, ...]:
    """Return a tuple with a note that ``pieces`` pieces of text were blacked out. It is empty if there were none."""
    return (f"{count_phrase(pieces, 'piece', 'pieces')} of {BLACKED_OUT}",) if pieces else ()


def private_text(grey: np.ndarray) -> list[Piece]:
    """Find the pieces of text in an image that may identify a person."""
    return [piece for piece in find_text(grey) if piece.score >= _LEAST_SCORE and is_private(piece.text)]


def is_private(text: str) -> bool:
    """Return True if a text has at least three letters or digits besides words of markers, such as "AP"."""
    words = [word for word in re.findall(r"[^\W\d_]+|\d+", text.lower()) if word not in _MARKERS]
    is_marker = {word: len(word) > 3 and get_close_matches(word, _LONG_MARKERS, 1, _SIMILAR) for word in words}
    return sum(len(word) for word in words if not is_marker[word]) >= _LEAST_SIGNS


def find_text(grey: np.ndarray) -> list[Piece]:
    """Find all pieces of text in an image, from top to bottom. Raises Broken if the package rapidocr is missing."""
    detect, read = _readers()
    colour = grey if grey.ndim == 3 else cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)
    height, width = colour.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(colour, size, interpolation=cv2.INTER_AREA) if scale < 1 else colour
    pieces = []
    for corners in detect(small):
        corners = corners / np.array([small.shape[1] / width, small.shape[0] / height])
        text, score = max(map(read, _views(colour, corners)), key=lambda result: result[1])
        low, high = corners.min(axis=0), corners.max(axis=0)
        margin = max(2.0, _MARGIN * float(min(high - low)))
        edges = [*np.maximum(np.floor(low - margin), 0), *np.minimum(np.ceil(high + margin), (width, height))]
        pieces.append(Piece(tuple(map(int, edges)), text, score))
    return pieces


def _views(colour: np.ndarray, corners: np.ndarray) -> Iterator[np.ndarray]:
    """Yield three crops of a piece of text: as it is, rotated by 180 degrees, mirrored. Vertical text is turned."""
    along, across = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0])
    width, height = max(2, round(float(along))), max(2, round(float(across)))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    warp = cv2.getPerspectiveTransform(corners.astype(np.float32), target)
    piece = cv2.warpPerspective(colour, warp, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    if height > 1.5 * width:
        piece = np.ascontiguousarray(np.rot90(piece))
    yield piece
    yield np.ascontiguousarray(piece[::-1, ::-1])
    yield np.ascontiguousarray(piece[:, ::-1])


@cache
def _readers():
    """Return two functions: ``detect`` finds corners (N, 4, 2) of texts, ``read`` returns (text, score) of a crop."""
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise Broken(
            f"frames: this Python lacks the package rapidocr ({error.name}): run snakemake with "
            "--software-deployment-method conda, install rapidocr, or set privacy.burned_in to keep"
        ) from error
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = {f"EngineConfig.onnxruntime.{name}_op_num_threads": 1 for name in ("intra", "inter")}
    detection = {"Global.log_level": "error", "Det.limit_type": "max", "Det.limit_side_len": _SIDE}
    engine = RapidOCR(params=threads | detection)

    def detect(colour: np.ndarray) -> np.ndarray:
        boxes = engine(colour, use_det=True, use_cls=False, use_rec=False).boxes
        return np.zeros((0, 4, 2)) if boxes is None else np.asarray(boxes, np.float64)

    def read(piece: np.ndarray) -> tuple[str, float]:
        result = engine(piece, use_det=False, use_cls=False, use_rec=True)
        return (result.txts[0], float(result.scores[0])) if result.txts else ("", 0.0)

    return detect, read
