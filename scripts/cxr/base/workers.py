"""Processing the images of a shard in order and with bounded memory, either in a thread pool or in batches."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cxr.base import faults
from cxr.base.errors import out_of_memory
from cxr.base.faults import Failures
from cxr.base.jobs import progress

if TYPE_CHECKING:
    from cxr.base.ledger import Ledger

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger("cxr")
Fault = tuple[str, str]  # why an image is excluded: (code of :data:`cxr.base.exclusions.REASONS`, detail)
Read = Callable[[str], tuple]
Work = Callable[[list[tuple]], list[tuple[R, Fault | None]]]


class EngineFault(tuple):
    """A :data:`Fault` that an error of the engine caused, with this error. Too many such faults end the job."""

    error: Exception

    @classmethod
    def from_error(cls, error: Exception, reason: str = "engine_failure", detail: str = "") -> "EngineFault":
        """Return the :data:`Fault` for an engine's error. The default ``detail`` names the function that failed."""
        fault = cls((reason, detail or faults.describe_failure(error)))
        fault.error = error
        return fault


def map_ahead(pool: Executor, function: Callable[[T], R], items: Iterable[T], depth: int) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order. The pool computes at most ``depth`` items ahead."""
    waiting: deque = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def process_rows(
    ledger: "Ledger", image_ids: list[str], read: Read, work: Work[R], batch: int | None, threads: int,
    compute: dict | None = None,
) -> Iterator[tuple[str, R]]:  # fmt: skip
    """Yield (image_id, result) of the accepted images, ordered by image_id, and record every image in the ledger.

    ``read`` takes an image id and returns the image's row, a tuple. ``work`` takes a list of rows and returns (result,
    fault) for each, where a fault that is not None excludes the image. If ``batch`` is a number, ``work`` receives up
    to that many rows at a time (:func:`process_fitting_batches`), while a thread reads the next rows. If ``batch`` is
    None, ``work`` receives single rows in a pool of ``threads`` threads. ``read`` then runs in the calling thread,
    because threads must not share HDF5 files.

    An image for which ``work`` raises is excluded as ``engine_failure``, because one bad image must not end the shard.
    An error that no image caused ends the shard: a UserError, a lack of memory, or a broken device or program. More
    failures than the settings section ``compute`` allows also end the shard.
    """
    names = sorted(image_ids)
    failures = Failures(ledger.stage, len(names), compute)
    rows = zip(names, _results(names, read, work, batch, max(1, threads), ledger.stage), strict=True)
    for image_id, (result, fault) in progress(rows, len(names), ledger.stage):
        if isinstance(fault, EngineFault):
            failures.note(faults.failure_kind(fault.error), fault.error)
        else:
            failures.passed()
        if fault:
            ledger.exclude(image_id, "", *fault)
        else:
            ledger.accept(image_id)
            yield image_id, result


def _results(
    names: list[str], read: Read, work: Work[R], batch: int | None, threads: int, task: str
) -> Iterator[tuple[Any, Fault | None]]:
    if batch is None:
        with ThreadPoolExecutor(threads) as pool:
            rows = ([read(name)] for name in names)
            yield from map_ahead(pool, lambda row: process_fitting_batches(work, row, 1, task)[0][0], rows, 4 * threads)
        return
    batch = max(1, batch)
    with ThreadPoolExecutor(1) as reader:
        rows_ahead = map_ahead(reader, read, names, batch)
        while part := list(islice(rows_ahead, batch)):
            done, batch = process_fitting_batches(work, part, batch, task)
            yield from done


def process_fitting_batches(
    work: Work[R], rows: list[tuple], batch: int, task: str
) -> tuple[list[tuple[R | None, Fault | None]], int]:
    """Apply ``work`` to the rows, up to ``batch`` at a time. Return (results, batch size that fits into memory).

    A batch that does not fit into memory is halved. A batch that fails for another reason is retried row by row, so
    that a bad row does not exclude good rows. A row that fails alone gives ``(None, EngineFault)``. Errors that no row
    caused, and a lack of memory for a single row, are raised. ``task`` names the work in error messages.
    """
    done: list[tuple] = []
    while len(done) < len(rows):
        part = rows[len(done) : len(done) + batch]
        try:
            done += work(part)
        except Exception as error:
            if len(part) == 1 and out_of_memory(error):
                raise MemoryError("a single image does not fit into memory") from error
            if out_of_memory(error):
                batch = len(part) // 2
                log.warning("a batch of %d does not fit into memory: smaller batches of %d follow", len(part), batch)
                continue
            if faults.broken_part(error):  # it would only fail again
                raise faults.job_failure(task, error) from error
            if faults.is_not_from_input(error):
                raise
            if len(part) == 1:
                done.append((None, EngineFault.from_error(error)))
            else:
                done += [result for row in part for result in process_fitting_batches(work, [row], 1, task)[0]]
    return done, batch
