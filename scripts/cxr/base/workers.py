"""Processing the images of a shard in order and with bounded memory, in a pool of threads or in batches."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from cxr.base import faults
from cxr.base.errors import out_of_memory
from cxr.base.faults import NO_LIMIT, Failures, Tolerance
from cxr.base.jobs import progress

if TYPE_CHECKING:
    from cxr.base.ledger import Ledger

R = TypeVar("R")
log = logging.getLogger("cxr")
Fault = tuple[str, str]  # why an image is excluded: a code of :data:`cxr.base.exclusions.REASONS`, and a detail


Read = Callable[[str], tuple]
Work = Callable[..., tuple[R, Fault | None]]
BatchWork = Callable[[list[tuple]], list[tuple[R, Fault | None]]]


class EngineFault(tuple):
    """A :data:`Fault` raised by the engine, with its error; a :class:`Tolerance` counts these."""

    error: Exception

    @classmethod
    def from_error(cls, error: Exception, reason: str = "engine_failure", detail: str = "") -> "EngineFault":
        """Build it from an engine's error; the default ``detail`` names the function that failed."""
        fault = cls((reason, detail or faults.describe_failure(error)))
        fault.error = error
        return fault


def process_images(
    ledger: "Ledger", image_ids: list[str], read: Read, work: Work[R], threads: int, tolerance: Tolerance = NO_LIMIT
) -> Iterator[tuple[str, R]]:
    """Yield (image_id, result) of the accepted images, in order of image_id, and enter every image in the ledger.

    ``work(*read(image_id))`` returns the result and the fault that excludes the image, if any. If it raises, the image
    is excluded as ``engine_failure``: one bad image must not end the shard. Errors that no image caused end the shard,
    and the job is retried: a UserError, a lack of memory, a broken device or program, and more failures than
    ``tolerance`` allows (Broken).
    ``read`` runs in this thread, because HDF5 files must not be shared between threads; ``work`` runs in the pool.
    """
    rows = _worked(sorted(image_ids), read, work, max(1, threads), ledger.stage)
    yield from _entered(ledger, rows, len(image_ids), tolerance)


def process_batches(
    ledger: "Ledger", image_ids: list[str], read: Read, work: BatchWork[R], batch: int, tolerance: Tolerance = NO_LIMIT
) -> Iterator[tuple[str, R]]:
    """Do as :func:`process_images`, with up to ``batch`` rows at a time, while one thread reads the next rows.

    A batch that does not fit into memory is halved, also for the rest of the shard. After any other failure the rows of
    the batch are tried one by one, so that one bad image excludes no other.
    """
    rows = _batched(sorted(image_ids), read, work, max(1, batch), ledger.stage)
    yield from _entered(ledger, rows, len(image_ids), tolerance)


def process_rows(
    ledger: "Ledger", image_ids: list[str], read: Read, work: Work[R], work_batch: BatchWork[R], engine: object,
    threads: int, compute: dict | None,
) -> Iterator[tuple[str, R]]:  # fmt: skip
    """Do as :func:`process_batches` if the engine has a ``batch``, else as :func:`process_images`.

    ``compute``: the settings' section of that name, which says how many images may fail.
    """
    batch, tolerance = getattr(engine, "batch", None), Tolerance.from_settings(compute)
    if batch is None:
        return process_images(ledger, image_ids, read, work, threads, tolerance)
    return process_batches(ledger, image_ids, read, work_batch, batch, tolerance)


def _entered(
    ledger: "Ledger", rows: Iterator[tuple[str, tuple]], total: int, tolerance: Tolerance
) -> Iterator[tuple[str, R]]:
    failures = Failures(ledger.stage, total, tolerance)
    for image_id, (result, fault) in progress(rows, total, ledger.stage):
        if isinstance(fault, EngineFault):
            failures.note(faults.failure_kind(fault.error), fault.error)
        else:
            failures.passed()
        if fault:
            ledger.exclude(image_id, "", *fault)
        else:
            ledger.accept(image_id)
            yield image_id, result


def _worked(names: list[str], read: Callable, work: Callable, threads: int, task: str) -> Iterator[tuple[str, tuple]]:
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(names), 4 * threads):
            batch = names[first : first + 4 * threads]
            rows = [read(name) for name in batch]
            yield from zip(batch, pool.map(lambda row: _attempt(work, row, task), rows), strict=True)


def _attempt(work: Callable, arguments: tuple, task: str) -> tuple:
    try:
        return work(*arguments)
    except Exception as error:
        if out_of_memory(error):
            raise MemoryError("one image alone does not fit") from error
        return None, _fault_of_image(error, task)


def _fault_of_image(error: Exception, task: str) -> EngineFault:
    """Return the fault of an image that the engine failed on. Re-raises an error that the image did not cause."""
    if faults.broken_part(error):
        raise faults.job_failure(task, error) from error
    if faults.is_not_from_input(error):
        raise error
    return EngineFault.from_error(error)


def _batched(names: list[str], read: Callable, work: Callable, batch: int, task: str) -> Iterator[tuple[str, tuple]]:
    with ThreadPoolExecutor(1) as reader:
        ahead = [reader.submit(read, name) for name in names[:batch]]
        first = 0
        while first < len(names):
            rows = [future.result() for future in ahead[:batch]]
            ahead = ahead[len(rows) :]
            next_names = names[first + len(rows) + len(ahead) : first + 2 * len(rows)]
            ahead += [reader.submit(read, name) for name in next_names]
            done, batch = process_fitting_batches(work, rows, batch, task)
            yield from zip(names[first : first + len(rows)], done, strict=True)
            first += len(rows)


def process_fitting_batches(
    work: BatchWork[R], rows: list[tuple], batch: int, task: str
) -> tuple[list[tuple[R | None, Fault | None]], int]:
    """Return ``work`` of the rows, up to ``batch`` at a time, and the batch size that fits into memory.

    A batch that does not fit is halved. A batch that fails otherwise is tried row by row; a row that fails alone gives
    ``(None, EngineFault)``. Errors that no row caused, and a lack of memory for a single row, are raised as in
    :func:`process_images`. ``task`` names the work in log lines.
    """
    done: list[tuple] = []
    while len(done) < len(rows):
        part = rows[len(done) : len(done) + batch]
        try:
            done += work(part)
        except Exception as error:
            if len(part) == 1 and out_of_memory(error):
                raise MemoryError("one image alone does not fit") from error
            if out_of_memory(error):
                batch = len(part) // 2
                log.warning("a batch of %d does not fit into memory: %d from here on", len(part), batch)
                continue
            fault = _fault_of_image(error, task)  # a broken device would only fail again
            if len(part) == 1:
                done.append((None, fault))
            else:
                done += [result for row in part for result in process_fitting_batches(work, [row], 1, task)[0]]
    return done, batch
