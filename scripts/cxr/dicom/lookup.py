"""Modality and VOI lookup tables of any width and packing (PS3.3 C.11.1.1 and C.11.2.1.1)."""

from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

MAX_ENTRIES = 1 << 16  # maximum number of entries; a descriptor stores this number as 0, because its field has 16 bits


class UnusableTable(Exception):
    """A lookup table cannot be applied. The message is the reason, one clause."""


@dataclass(frozen=True)
class LookupTable:
    """A table that replaces pixel values by its entries."""

    entries: np.ndarray  # uint16 (N,)
    first: int  # pixel value that the first entry replaces
    bits: int  # width of the entries that the table declares
    note: str = ""  # how the data differ from the table's descriptor, "" if they agree

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Look up values of any number type. Return uint16. A value outside the table gets the nearest entry."""
        integer_values = values if values.dtype.kind in "iu" else np.rint(values)
        places = np.clip(integer_values.astype(np.int64) - self.first, 0, len(self.entries) - 1)
        return self.entries[places]

    def apply_as_fractions(self, values: np.ndarray) -> np.ndarray:
        """Look up values, divide the entries by the largest number of ``self.bits`` bits, and return float32 in 0..1.

        If the largest entry needs more or fewer bits, the entries are divided by this entry instead.
        """
        largest = int(self.entries.max())
        full = (1 << self.bits) - 1 if largest.bit_length() == self.bits else max(largest, 1)
        return self.apply(values).astype(np.float32) / full


def read_lookup_table(item: Dataset, *, is_signed: bool, is_little: bool) -> LookupTable:
    """Read the table in an item of a Modality or VOI LUT Sequence. Raises UnusableTable if it is faulty.

    ``is_signed`` says whether the pixel values are signed, ``is_little`` whether the file is little endian.
    """
    try:
        count, first, bits = (int(value) for value in item.LUTDescriptor)
        data = item.LUTData
    except (AttributeError, TypeError, ValueError):
        data = None
    if data is None:
        raise UnusableTable("its descriptor or its data are missing")
    count = count % MAX_ENTRIES or MAX_ENTRIES  # a signed descriptor stores 40000 as a negative number
    if is_signed and first >= MAX_ENTRIES // 2:
        first -= MAX_ENTRIES
    words, octets = _split_units(data, is_little)
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
    return LookupTable(entries.astype(np.uint16), first, bits, note)


def _split_units(data: object, is_little: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a table's data both as 16-bit words and as 8-bit units, from bytes (VR OW, OB, UN) or numbers (US, SS)."""
    if isinstance(data, bytes | bytearray):
        even = bytes(data) + bytes(len(data) % 2)
        words = np.frombuffer(even, "<u2" if is_little else ">u2")
        if is_little or len(data) % 2:
            return words[: len(data) // 2], np.frombuffer(bytes(data), np.uint8)
    else:
        try:
            words = np.atleast_1d(np.array(data, np.int64)) % MAX_ENTRIES
        except (TypeError, ValueError, OverflowError):
            raise UnusableTable("its data are not numbers") from None
    # the low byte of a word is the earlier entry, in files of either byte order
    return words.astype(np.int64), words.astype("<u2").view(np.uint8)
