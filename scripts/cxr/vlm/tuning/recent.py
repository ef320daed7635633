"""Encoded samples that stay in memory, as far as their bytes go."""

from collections import OrderedDict
from collections.abc import Callable

from cxr.vlm.collate import Encoded


class Recent:
    """Returns samples by their number, encoded: those that were needed last are kept, in at most ``most`` bytes."""

    def __init__(self, encode: Callable[[int], Encoded], most: int):
        self.encode, self.most, self.held = encode, most, 0
        self._kept: OrderedDict[int, Encoded] = OrderedDict()

    def __call__(self, at: int) -> Encoded:
        """Return a sample, encoded now or before."""
        if at in self._kept:
            self._kept.move_to_end(at)
            return self._kept[at]
        encoded = self._kept[at] = self.encode(at)
        self.held += encoded.nbytes
        while self.held > self.most:
            self.held -= self._kept.popitem(last=False)[1].nbytes
        return encoded
