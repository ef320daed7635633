"""Pausing Python's collector of reference cycles, for work that makes many objects and no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_cycle_collector() -> Iterator[None]:
    """Turn the collector off inside the block; a cycle made there is collected later."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
