"""Counting how often a program waits for its tensors: operations that give the host a value, on any device."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "unique_dim", "_unique2", "repeat_interleave")
"""Operators whose result, or its size, the host must know: `.item()`, `int()`, `bool()` and what indexes by truth."""
COPYING = ("tolist", "cpu", "numpy")
"""Methods that copy to the host and, of a tensor of the CPU, call no operator."""


class _Reads(TorchDispatchMode):
    def __init__(self, seen: Counter):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        indexed = name in ("index", "index_put", "index_put_") and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if name in WAITING or indexed:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def host_reads() -> Iterator[Counter]:
    """Yield a counter of the waits inside ``with``, by operator or method."""
    seen: Counter = Counter()

    def counted(name: str):
        honest = getattr(torch.Tensor, name)

        def method(self, *args, **kwargs):
            seen[name] += 1
            return honest(self, *args, **kwargs)

        return method

    with _Reads(seen), mock.patch.multiple(torch.Tensor, **{name: counted(name) for name in COPYING}):
        yield seen
