"""The distinct instructions of a dataset, all splits together: each is reworded once, not once a pair.

Writes JSON Lines in order of the texts: instruction, type, word (the lesion type named), location (list), the last
three null where the text is not of Table 2 (a release of others may hold such). Nothing else of a pair, so that the
file stays as it is while the dataset grows by pairs with the same instructions.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict

from cxr.base.tables import read_lines, write_lines
from cxr.ils.templates import parse_instruction

log = logging.getLogger("cxr")


def run(*, lines: Sequence[str], output: str) -> None:
    """Collect the instructions of the files of pairs ``lines``."""
    texts = sorted({line["instruction"] for path in lines for line in read_lines(path)})
    rows = [row_of(text) for text in texts]
    unknown = sum(row["type"] is None for row in rows)
    log.info("paraphrase: %d distinct instructions, %d of them of no known form", len(rows), unknown)
    write_lines(output, rows, checked=True)


def row_of(text: str) -> dict:
    """Return the line of an instruction."""
    try:
        meant = asdict(parse_instruction(text))
    except ValueError:
        return {"instruction": text, "type": None, "word": None, "location": None}
    return {"instruction": text} | meant | {"location": list(meant["location"])}
