"""A cache of encoded samples in memory."""

from collections import OrderedDict
from collections.abc import Callable

from cxr.vlm.collate import Encoded


class EncodedCache:
    """Returns encoded samples by index; the most recently used ones are cached in at most ``max_bytes``."""

    def __init__(self, encode: Callable[[int], Encoded], max_bytes: int):
        self.encode, self.max_bytes, self.num_bytes = encode, max_bytes, 0
        self._samples: OrderedDict[int, Encoded] = OrderedDict()

    def __call__(self, at: int) -> Encoded:
        """Return a sample, from the cache or newly encoded."""
        if at in self._samples:
            self._samples.move_to_end(at)
            return self._samples[at]
        encoded = self._samples[at] = self.encode(at)
        self.num_bytes += encoded.nbytes
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._samples.popitem(last=False)[1].nbytes
        return encoded
