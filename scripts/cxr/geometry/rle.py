"""COCO's run-length encoding of masks: ``{"size": [height, width], "counts": list or text}``.

The counts are the lengths of alternating runs of zeros and ones, column by column, and zeros come first.

The text is COCO's compressed form. From the fourth count on, a count is stored as its difference from the count two
before. Numbers are groups of five bits, lowest first; a character is "0" (48) + group, + 32 if another group follows.
"""

from typing import Any

import numpy as np

MAX_SIDE = 16_384  # largest accepted side of a mask, px; anything larger is damaged data


def decode_rle(rle: dict) -> np.ndarray:
    """Decode COCO's run-length code to a mask, bool (height, width). Raises ValueError if the code is malformed."""
    try:
        height, width = (int(side) for side in rle["size"])
        counts = rle["counts"]
        numbers = _unpack_counts(counts) if isinstance(counts, str) else [_parse_count(count) for count in counts]
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"no run-length code with size and counts ({type(error).__name__})") from None
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise ValueError(f"the mask's size {height} x {width} is not within 1 to {MAX_SIDE} px")
    if min(numbers, default=0) < 0 or sum(numbers) != height * width:
        raise ValueError(f"the run lengths do not add up to the mask's size {height} x {width}")
    values = np.arange(len(numbers)) % 2 == 1
    return np.repeat(values, numbers).reshape(width, height).T


def encode_rle(mask: np.ndarray) -> dict:
    """Return COCO's run-length code of a mask (height, width), with the counts as text (compressed form)."""
    flat = np.asarray(mask, bool).T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    bounds = [0, *([0] if flat.size and flat[0] else []), *edges.tolist(), flat.size]
    counts = np.diff(bounds).tolist()
    return {"size": [int(side) for side in mask.shape], "counts": _pack_counts(counts)}


def _parse_count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(f"a run length is {value!r}, not a whole number")
    return int(value)


def _unpack_counts(text: str) -> list[int]:
    numbers: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64:
            raise ValueError(f"the run lengths contain the invalid character {character!r}")
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << shift  # the sign
        numbers.append(value + numbers[-2] if len(numbers) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("the run lengths end within a number")
    return numbers


def _pack_counts(counts: list[int]) -> str:
    characters: list[str] = []
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        while True:
            bits, value = value & 31, value >> 5
            done = value == (-1 if bits & 16 else 0)
            characters.append(chr(48 + bits + (0 if done else 32)))
            if done:
                break
    return "".join(characters)
