"""Work on the images of a shard with a pool of threads, in the shard's order and with bounded memory."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ils.core.ledger import Ledger
from ils.core.run import UserError, progress

R = TypeVar("R")
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
    image is excluded as ``engine_failure`` with the error's class name, for one bad image must not end the shard (a
    UserError does). ``read`` runs in this thread, because HDF5 files are not for sharing; ``work`` runs in the pool.
    """
    rows = _worked(sorted(image_ids), read, work, max(1, threads))
    for image_id, (result, fault) in progress(rows, len(image_ids), ledger.stage):
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
        return None, ("engine_failure", type(error).__name__)
