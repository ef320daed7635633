"""Writing records as JSON Lines, one file per split."""

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
    """Yield a function that writes ``line_of(record)`` to the file of the record's split.

    Records go straight to the files (UTF-8, keys in the order given). The files appear only when all are complete.
    """
    with ExitStack() as stack:
        files = {
            split: stack.enter_context(open(stack.enter_context(atomic(path)), "w", encoding="utf-8", newline="\n"))
            for split, path in paths.items()
        }

        def write(record: Record) -> None:
            files[record.split].write(json.dumps(line_of(record), ensure_ascii=False) + "\n")

        yield write
