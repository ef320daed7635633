"""Count the bytes of the tensors in use while a program runs, on any device, and their maximum."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Context that counts the bytes of new tensors from their creation until they are freed.

    ``now``: current bytes; ``peak``: maximum. On a GPU, the allocator's rounding and reserve are not counted. Memory
    that an operator uses internally is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, weakref.finalize] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        before = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor):
                self._see(one.untyped_storage(), before)
        return made

    def _see(self, storage: torch.UntypedStorage, before: set[int]) -> None:
        key = storage._cdata
        if key in before or key in self._known:  # a view, or what was there before
            return
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        self._known[key] = weakref.finalize(storage, self._gone, key, storage.nbytes())

    def _gone(self, key: int, size: int) -> None:
        del self._known[key]
        self.now -= size
