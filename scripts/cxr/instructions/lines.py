"""Records as JSON Lines, a file a split."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cxr.base.atomic import atomic
from cxr.instructions.record import Record


@contextmanager
def split_files(
    paths: Mapping[str, str | Path], line_of: Callable[[Record], dict]
) -> Iterator[Callable[[Record], None]]:
    """Yield the function that writes a record, as ``line_of`` tells it, to the file of its split.

    Records go straight to their files (UTF-8, keys in the order given), which appear when all are whole, or not at all.
    """
    with ExitStack() as stack:
        files = {
            split: stack.enter_context(open(stack.enter_context(atomic(path)), "w", encoding="utf-8", newline="\n"))
            for split, path in paths.items()
        }

        def write(record: Record) -> None:
            files[record.split].write(json.dumps(line_of(record), ensure_ascii=False) + "\n")

        yield write
