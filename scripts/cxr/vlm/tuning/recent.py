"""A cache of encoded samples in memory."""

from collections import OrderedDict
from collections.abc import Callable

from cxr.vlm.collate import Encoded


class EncodedCache:
    """Returns encoded samples by index; the most recently used ones are cached in at most ``max_bytes``."""

    def __init__(self, encode: Callable[[int], Encoded], most: int):
        self.encode, self.most, self.held = encode, most, 0
        self._kept: OrderedDict[int, Encoded] = OrderedDict()

    def __call__(self, at: int) -> Encoded:
        """Return a sample, from the cache or newly encoded."""
        if at in self._kept:
            self._kept.move_to_end(at)
            return self._kept[at]
        encoded = self._kept[at] = self.encode(at)
        self.held += encoded.nbytes
        while self.held > self.most:
            self.held -= self._kept.popitem(last=False)[1].nbytes
        return encoded
