"""Caches for the outputs of frozen encoders, so that each view of an image is encoded once per job.

A view is an image with or without histogram equalisation. :class:`MemoryCache` keeps the views used last,
:class:`DiskCache` all views. On disk, a sparse file of the final size has the values, and a second file has one byte
per view, 1 if its values are written. Processes on one machine share the files; all write the same values.
"""

import logging
import math
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from cxr.base.errors import UserError

log = logging.getLogger("cxr")
View = tuple[str, bool]  # (name of the image, whether its histogram is equalised)


class DiskCache:
    """The outputs of one encoder for all ``views``, in ``folder``/``name``.bin; ``shape``: shape of an output."""

    def __init__(self, folder: Path, name: str, views: Iterable[View], shape: tuple[int, ...], dtype: torch.dtype):
        self._row = {view: row for row, view in enumerate(views)}
        count, size = len(self._row), math.prod(shape)
        folder.mkdir(parents=True, exist_ok=True)
        paths = (str(folder / f"{name}.bin"), str(folder / f"{name}.done"))
        self._values = torch.from_file(paths[0], shared=True, size=count * size, dtype=dtype).view(count, *shape)
        self._done = torch.from_file(paths[1], shared=True, size=count, dtype=torch.uint8)

    def get(self, views: list[View], pixels: torch.Tensor, encode: Callable[[torch.Tensor], torch.Tensor]):
        """Return the outputs for I views, (I, *shape), on the device of ``pixels`` (I, ...).

        ``encode``: the encoder; it is called with the pixels of missing views. Raises KeyError for an unknown view.
        """
        rows = torch.tensor([self._row[view] for view in views])
        missing = (self._done[rows] == 0).nonzero()[:, 0]
        if len(missing):
            self._values[rows[missing]] = encode(pixels[missing.to(pixels.device)]).to(self._values)
            self._done[rows[missing]] = 1
        return self._values[rows].to(pixels.device)


class MemoryCache:
    """The outputs of one encoder for the most recently used views, in at most ``max_bytes`` bytes of memory."""

    def __init__(self, max_bytes: int = 10**9):
        self.max_bytes = max_bytes
        self._values: OrderedDict[View, torch.Tensor] = OrderedDict()

    def get(self, views: list[View], pixels: torch.Tensor, encode: Callable[[torch.Tensor], torch.Tensor]):
        """Return the outputs for I views, (I, ...); arguments as for :meth:`DiskCache.get`."""
        missing = [at for at, view in enumerate(views) if view not in self._values]
        if missing:
            encoded = encode(pixels[torch.tensor(missing, device=pixels.device)]).cpu()
            self._values |= {views[at]: value for at, value in zip(missing, encoded, strict=True)}
        outputs = torch.stack([self._values[view] for view in views])
        for view in views:
            self._values.move_to_end(view)
        while len(self._values) * outputs[0].nbytes > self.max_bytes:
            self._values.popitem(last=False)
        return outputs.to(pixels.device)


def open_disk_caches(
    folder: Path, views: list[View], shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, setting: str
) -> dict[str, DiskCache]:
    """Return {encoder: cache}; ``shapes``: {encoder: output shape}. On a full disk, UserError names ``setting``."""
    folder.mkdir(parents=True, exist_ok=True)
    used_bytes = sum(path.stat().st_blocks * 512 for path in folder.glob("*.bin"))
    room, size = shutil.disk_usage(folder).free + used_bytes, len(views) * dtype.itemsize
    size *= sum(map(math.prod, shapes.values()))
    encoders = " and ".join(shapes)
    disk_message = f"the outputs of the frozen {encoders} for {len(views)} views take {size / 1e9:.2f} GB in {folder}"
    if size > room:
        raise UserError(f"{setting} is true, but {disk_message}, where {room / 1e9:.2f} GB are free: set it to false")
    log.info("%s: %s", setting, disk_message)
    return {name: DiskCache(folder, name, views, shape, dtype) for name, shape in shapes.items()}
