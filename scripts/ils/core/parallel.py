"""Work on the images of a shard, in its order and with bounded memory: in a pool of threads, or in batches."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ils.core.ledger import Ledger
from ils.core.run import UserError, out_of_memory, progress

R = TypeVar("R")
log = logging.getLogger("ils")
Fault = tuple[str, str]
"""Why an image stops here: a code of ``labels.REASONS``, and a detail."""


def sift(
    ledger: Ledger,
    image_ids: list[str],
    read: Callable[[str], tuple],
    work: Callable[..., tuple[R, Fault | None]],
    threads: int,
) -> Iterator[tuple[str, R]]:
    """Yield (image_id, result) of the images that stay, in order of image_id, and enter every image in the ledger.

    ``work(*read(image_id))`` returns the result and the fault that excludes the image, if any; where it raises, the
    image is excluded as ``engine_failure`` with the error's class name, for one bad image must not end the shard. A
    UserError does, and so does a lack of memory, which says nothing of the image: the job is tried again with more.
    ``read`` runs in this thread, because HDF5 files are not for sharing; ``work`` runs in the pool.
    """
    yield from _entered(ledger, _worked(sorted(image_ids), read, work, max(1, threads)), len(image_ids))


def sift_batches(
    ledger: Ledger,
    image_ids: list[str],
    read: Callable[[str], tuple],
    work: Callable[[list[tuple]], list[tuple[R, Fault | None]]],
    batch: int,
) -> Iterator[tuple[str, R]]:
    """Do as :func:`sift` with ``work`` on up to ``batch`` rows at a time, while one thread reads the next ones.

    Where a batch does not fit into memory it is halved, for the rest of the shard too; where it fails otherwise its
    rows are tried one by one, so that one bad image takes no other with it.
    """
    yield from _entered(ledger, _batched(sorted(image_ids), read, work, max(1, batch)), len(image_ids))


def sift_either(
    ledger: Ledger,
    image_ids: list[str],
    read: Callable[[str], tuple],
    work: Callable[..., tuple[R, Fault | None]],
    work_batch: Callable[[list[tuple]], list[tuple[R, Fault | None]]],
    *,
    threads: int,
    batch: int | None,
) -> Iterator[tuple[str, R]]:
    """Do as :func:`sift_batches` with ``work_batch`` for an engine that has a ``batch``, else as :func:`sift`."""
    if batch is None:
        return sift(ledger, image_ids, read, work, threads)
    return sift_batches(ledger, image_ids, read, work_batch, batch)


def _entered(ledger: Ledger, rows: Iterator[tuple[str, tuple]], total: int) -> Iterator[tuple[str, R]]:
    for image_id, (result, fault) in progress(rows, total, ledger.stage):
        if fault:
            ledger.exclude(image_id, "", *fault)
        else:
            ledger.accept(image_id)
            yield image_id, result


def _worked(names: list[str], read: Callable, work: Callable, threads: int) -> Iterator[tuple[str, tuple]]:
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(names), 4 * threads):
            batch = names[first : first + 4 * threads]
            rows = [read(name) for name in batch]
            yield from zip(batch, pool.map(lambda row: _attempt(work, row), rows), strict=True)


def _attempt(work: Callable, arguments: tuple) -> tuple:
    try:
        return work(*arguments)
    except UserError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise MemoryError("one image alone does not fit") from error
        return None, ("engine_failure", type(error).__name__)


def _batched(names: list[str], read: Callable, work: Callable, batch: int) -> Iterator[tuple[str, tuple]]:
    with ThreadPoolExecutor(1) as reader:
        ahead = [reader.submit(read, name) for name in names[:batch]]
        first = 0
        while first < len(names):
            rows = [future.result() for future in ahead[:batch]]
            ahead = ahead[len(rows) :]
            wanted = names[first + len(rows) + len(ahead) : first + 2 * len(rows)]
            ahead += [reader.submit(read, name) for name in wanted]
            done, batch = fitting(work, rows, batch)
            yield from zip(names[first : first + len(rows)], done, strict=True)
            first += len(rows)


def fitting(
    work: Callable[[list[tuple]], list[tuple[R, Fault | None]]], rows: list[tuple], batch: int
) -> tuple[list[tuple[R | None, Fault | None]], int]:
    """Return ``work`` of the rows, up to ``batch`` at a time, and the batch that fits into memory (at most ``batch``).

    One that does not fit is halved; one that fails otherwise is tried row by row, and a row that fails alone is
    ``(None, ("engine_failure", the error's class name))``. A UserError is raised, and so is the lack of memory for a
    single row.
    """
    done: list[tuple] = []
    while len(done) < len(rows):
        part = rows[len(done) : len(done) + batch]
        try:
            done += work(part)
        except UserError:
            raise
        except Exception as error:
            if len(part) == 1 and out_of_memory(error):
                raise MemoryError("one image alone does not fit") from error
            if len(part) == 1:
                done.append((None, ("engine_failure", type(error).__name__)))
            elif out_of_memory(error):
                batch = len(part) // 2
                log.warning("a batch of %d does not fit into memory: %d from here on", len(part), batch)
            else:
                done += [result for row in part for result in fitting(work, [row], 1)[0]]
    return done, batch
