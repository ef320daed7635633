"""Answers kept on disk while a job asks for many, so that a job that was cut off goes on where it stopped.

A folder holds ``identity``, a digest of all that an answer depends on, and numbered files of checked lines, each
written at once when its questions are answered. Answers stay there after the job: the next one asks only for texts that
are new. Answers of another model, prompt or code are removed.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from cxr.base.tables import read_lines, write_lines
from cxr.base.unfinished import facts_of_files, prepare
from cxr.llm.options import ModelOptions

log = logging.getLogger("cxr")
PATTERN = "answers-*.jsonl"
Make = Callable[[list[str]], list[dict]]
"""Takes texts' names and returns a line for each, in order, with its name under the folder's key."""


def identity(options: ModelOptions, code: str) -> str:
    """Return the digest of all that an answer depends on; of a model's folder, names and sizes."""
    facts = facts_of_files(options.model) if Path(options.model).is_dir() else b""
    told = json.dumps(asdict(options) | {"code": code}, sort_keys=True).encode()
    return hashlib.sha256(told + b"\0" + facts).hexdigest()


def answered(names: Sequence[str], make: Make, *, folder: Path, mark: str, at_once: int, key: str) -> dict[str, dict]:
    """Return {name: its line} of every name, once each; asks for those without a line in ``folder``.

    ``mark``: of :func:`identity`; ``at_once``: number of names between two files; ``key``: name's key in a line.
    Raises StoreError for a damaged file.
    """
    prepare(folder, mark, kept=PATTERN, told=f"{folder} holds answers of another model, prompt or code: asking again")
    wanted = dict.fromkeys(names)
    found = {line[key]: line for path in sorted(folder.glob(PATTERN)) for line in read_lines(path)}
    missing = [name for name in wanted if name not in found]
    if found:
        log.info("%d of %d answers were there already", len(wanted) - len(missing), len(wanted))
    number = 1 + max((int(path.stem.partition("-")[2]) for path in folder.glob(PATTERN)), default=-1)
    for place, part in enumerate(parts(missing, at_once)):
        lines = make(part)
        if [line[key] for line in lines] != part:
            raise AssertionError(f"{len(part)} texts were asked, {len(lines)} lines came, or in another order")
        write_lines(folder / f"answers-{number + place:06d}.jsonl", lines, checked=True)
        found |= {line[key]: line for line in lines}
        log.info("%d of %d answers", min((place + 1) * at_once, len(missing)), len(missing))
    return {name: found[name] for name in wanted}


def parts(names: list[str], at_once: int) -> Iterator[list[str]]:
    """Yield the names in runs of ``at_once``."""
    for first in range(0, len(names), at_once):
        yield names[first : first + at_once]
