"""Outputs of frozen encoders, kept for the time of a training or of a job: each view of an image is encoded once.

A view is an image, equalised or not. In memory (:class:`Remembered`) are the values of the views that were needed last;
on disk (:class:`Kept`) those of all. There one file holds the values, at once as large as it will be (sparse: it
takes room as it fills); another holds a byte for each view, 1 once its values are there. Processes on one machine share
the files: what two of them write of one view is the same.
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
View = tuple[str, bool]
"""Name of an image, and whether its histogram is equalised."""


class Kept:
    """The values of one encoder for a set of views, in ``folder``/``name``.bin of ``dtype``, each of ``shape``."""

    def __init__(self, folder: Path, name: str, views: Iterable[View], shape: tuple[int, ...], dtype: torch.dtype):
        self._row = {view: row for row, view in enumerate(views)}
        count, size = len(self._row), math.prod(shape)
        folder.mkdir(parents=True, exist_ok=True)
        paths = (str(folder / f"{name}.bin"), str(folder / f"{name}.done"))
        self._values = torch.from_file(paths[0], shared=True, size=count * size, dtype=dtype).view(count, *shape)
        self._done = torch.from_file(paths[1], shared=True, size=count, dtype=torch.uint8)

    def get(self, views: list[View], pixels: torch.Tensor, encode: Callable[[torch.Tensor], torch.Tensor]):
        """Return the values of I views (I, *shape) on the device of their ``pixels`` (I, ...).

        ``encode``: the encoder, for the pixels of those views that are not kept yet. Raises KeyError for an unknown
        view.
        """
        rows = torch.tensor([self._row[view] for view in views])
        missing = (self._done[rows] == 0).nonzero()[:, 0]
        if len(missing):
            self._values[rows[missing]] = encode(pixels[missing.to(pixels.device)]).to(self._values)
            self._done[rows[missing]] = 1
        return self._values[rows].to(pixels.device)


class Remembered:
    """The values of one encoder for the views that were needed last, in memory of at most ``most`` bytes."""

    def __init__(self, most: int = 10**9):
        self.most = most
        self._values: OrderedDict[View, torch.Tensor] = OrderedDict()

    def get(self, views: list[View], pixels: torch.Tensor, encode: Callable[[torch.Tensor], torch.Tensor]):
        """Return the values of I views (I, ...), as :meth:`Kept.get` does."""
        missing = [at for at, view in enumerate(views) if view not in self._values]
        if missing:
            encoded = encode(pixels[torch.tensor(missing, device=pixels.device)]).cpu()
            self._values |= {views[at]: value for at, value in zip(missing, encoded, strict=True)}
        outputs = torch.stack([self._values[view] for view in views])
        for view in views:
            self._values.move_to_end(view)
        while len(self._values) * outputs[0].nbytes > self.most:
            self._values.popitem(last=False)
        return outputs.to(pixels.device)


def nbytes(views: int, shapes: Iterable[tuple[int, ...]], dtype: torch.dtype) -> int:
    """Return the bytes of the values of so many views."""
    return views * sum(math.prod(shape) for shape in shapes) * dtype.itemsize


def keep(
    folder: Path, views: list[View], shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, setting: str
) -> dict[str, Kept]:
    """Return {encoder: its kept values} and log the disk they take.

    Raises UserError, which names ``setting``, where the disk of ``folder`` has less room than they still need.
    """
    folder.mkdir(parents=True, exist_ok=True)
    used_bytes = sum(path.stat().st_blocks * 512 for path in folder.glob("*.bin"))
    room, size = shutil.disk_usage(folder).free + used_bytes, nbytes(len(views), shapes.values(), dtype)
    disk_message = (
        f"the outputs of the frozen {' and '.join(shapes)} for {len(views)} views take {size / 1e9:.2f} GB in {folder}"
    )
    if size > room:
        raise UserError(f"{setting} is true, but {disk_message}, where {room / 1e9:.2f} GB are free: set it to false")
    log.info("%s: %s", setting, disk_message)
    return {name: Kept(folder, name, views, shape, dtype) for name, shape in shapes.items()}
