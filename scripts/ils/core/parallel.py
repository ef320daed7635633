"""Work on the images of a shard with a pool of threads, in the shard's order and with bounded memory."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ils.core.run import UserError

R = TypeVar("R")


def failure_of(work: Callable[..., R], *arguments: object) -> R | str:
    """Return what ``work`` gives, or the name of the error class: one bad image must not end the shard."""
    try:
        return work(*arguments)
    except UserError:
        raise
    except Exception as error:
        return type(error).__name__


def map_rows(
    names: list[str], read: Callable[[str], tuple], work: Callable[..., R], threads: int
) -> Iterator[tuple[str, tuple, R | str]]:
    """Yield (name, what was read, what ``work`` made of it or the name of its error class) in order of ``names``.

    ``read`` runs in this thread, because HDF5 files are not for sharing; ``work(*read(name))`` runs in the pool.
    """
    threads = max(1, threads)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(names), 4 * threads):
            batch = names[first : first + 4 * threads]
            rows = [read(name) for name in batch]
            yield from zip(batch, rows, pool.map(lambda row: failure_of(work, *row), rows), strict=True)
