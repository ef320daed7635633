"""Modality and VOI lookup tables of any width and packing (PS3.3 C.11.1.1 and C.11.2.1.1)."""

from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

LARGEST = 1 << 16
"""Number of entries that a descriptor writes as 0, because its field has 16 bits."""


class UnusableTable(Exception):
    """A lookup table cannot be applied; the message says why in one clause."""


@dataclass(frozen=True)
class Table:
    """``entries`` uint16 (N,); ``first``: the value that the first entry is for; ``bits``: width as declared.

    ``note``: how the data differ from the descriptor, "" if they do not.
    """

    entries: np.ndarray
    first: int
    bits: int
    note: str = ""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return the entries, uint16, for values of any type; values beyond an end get that end's entry."""
        integer_values = values if values.dtype.kind in "iu" else np.rint(values)
        places = np.clip(integer_values.astype(np.int64) - self.first, 0, len(self.entries) - 1)
        return self.entries[places]

    def fractions(self, values: np.ndarray) -> np.ndarray:
        """Return the entries, float32, as fractions of the largest possible one.

        That is the largest of the declared width, or of the table itself if its entries are narrower or wider.
        """
        largest = int(self.entries.max())
        full = (1 << self.bits) - 1 if largest.bit_length() == self.bits else max(largest, 1)
        return self.apply(values).astype(np.float32) / full


def read_table(item: Dataset, *, is_signed: bool, is_little: bool) -> Table:
    """Return the table of an item of a Modality or VOI LUT Sequence.

    ``is_signed``: whether the pixel values are; ``is_little``: whether the file is little endian. Raises UnusableTable.
    """
    try:
        count, first, bits = (int(value) for value in item.LUTDescriptor)
        data = item.LUTData
    except (AttributeError, TypeError, ValueError):
        data = None
    if data is None:
        raise UnusableTable("its descriptor or its data are missing")
    count = count % LARGEST or LARGEST  # a descriptor of signed type holds 40000 as a negative number
    if is_signed and first >= LARGEST // 2:
        first -= LARGEST
    words, octets = _units(data, is_little)
    note = ""
    if len(words) >= count:
        entries = words[:count]
        if len(words) > count:
            note = f"its descriptor says {count} entries, its data hold {len(words)}: the first {count} are used"
    elif len(octets) in (count, count + 1):
        entries = octets[:count]
    else:
        raise UnusableTable(f"its descriptor says {count} entries, its data hold {len(words)}")
    if len(entries) < 2 or entries.min() == entries.max():
        raise UnusableTable("all its entries are equal")
    return Table(entries.astype(np.uint16), first, bits, note)


def _units(data: object, is_little: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return table data as 16-bit words and as 8-bit units in their order, each an integer array.

    ``data``: bytes (VR OW, OB or UN), or numbers (VR US or SS).
    """
    if isinstance(data, bytes | bytearray):
        even = bytes(data) + bytes(len(data) % 2)
        words = np.frombuffer(even, "<u2" if is_little else ">u2")
        if is_little or len(data) % 2:
            return words[: len(data) // 2], np.frombuffer(bytes(data), np.uint8)
    else:
        try:
            words = np.atleast_1d(np.array(data, np.int64)) % LARGEST
        except (TypeError, ValueError, OverflowError):
            raise UnusableTable("its data are no numbers") from None
    # of a word the low byte is the earlier entry, whatever the order of bytes in the file
    return words.astype(np.int64), words.astype("<u2").view(np.uint8)
