"""Work that makes many objects and no cycles of them, which Python's collector of cycles would visit in vain."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_cycle_collector() -> Iterator[None]:
    """Keep the collector off; a cycle that is made all the same waits for its next visit."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
