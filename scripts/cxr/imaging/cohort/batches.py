"""Running many small file operations in a pool, in batches."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain
from typing import TypeVar

T, R = TypeVar("T"), TypeVar("R")
BATCH = 256
"""Items per task: submitting a single one takes longer than listing a folder."""


def in_batches(pool: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``function(item)`` in order, computed by the pool."""
    batches = [items[first : first + BATCH] for first in range(0, len(items), BATCH)]
    return chain.from_iterable(pool.map(lambda batch: [function(item) for item in batch], batches))
