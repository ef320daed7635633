"""Collect the distinct instructions of a dataset over all splits. Each is reworded once, not once per pair.

Writes JSON Lines sorted by text: instruction, type, word (the named lesion type), location (list). The last three are
null if the text is not of Table 2, as in a release by others. No other field of a pair is written, so new pairs with
the same instructions do not change the file.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict

from cxr.base.tables import read_lines, write_lines
from cxr.ils.templates import parse_instruction

log = logging.getLogger("cxr")


def run(*, lines: Sequence[str], output: str) -> None:
    """Collect the instructions of the pairs in the files ``lines``."""
    texts = sorted({line["instruction"] for path in lines for line in read_lines(path)})
    rows = [make_row(text) for text in texts]
    unknown = sum(row["type"] is None for row in rows)
    log.info("paraphrase: %d distinct instructions, %d of them of unknown form", len(rows), unknown)
    write_lines(output, rows, checked=True)


def make_row(text: str) -> dict:
    """Return the line of an instruction."""
    try:
        meant = asdict(parse_instruction(text))
    except ValueError:
        return {"instruction": text, "type": None, "word": None, "location": None}
    return {"instruction": text} | meant | {"location": list(meant["location"])}
