"""Shards: HDF5 files with the results for a part of the cohort, one row per image. Any program can read them::

    import h5py, hdf5plugin, numpy as np
    with h5py.File("results/organs/00.h5", locking=False) as f:
        names = f["image_id"].asstr()[:]
        labels = f["mask"].attrs["labels"].astype(str)
        packed = f["mask"][0]                          # (K, 512, 64) uint8, eight pixels per byte
        mask = np.unpackbits(packed, axis=-1).astype(bool)   # (K, 512, 512)

The codecs gave the smallest files among all fast codecs in ``benchmarks/storage.py`` (docs/reference/benchmarks.md).
HDF5 stores the codec in each dataset, so files with other codecs are read in the same way.
"""

import errno
import hashlib
import json
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import numpy.typing as npt

from cxr.base.atomic import atomic_file
from cxr.base.errors import StoreError, unreadable_file_error

FRAME_SIZE = 512  # side of a frame in pixels
FRAME = (
    f"{FRAME_SIZE} x {FRAME_SIZE} pixels; sides are the patient's: right is on the image's left; "
    "frames hold to_original, the way back"
)

MASK = hdf5plugin.Zstd(clevel=3)  # codec of packed masks
MAP = hdf5plugin.Zstd(clevel=14)  # codec of mostly-zero arrays: slow to write, but the net that makes them is slower
PICTURE = hdf5plugin.Htj2k()  # codec of greyscale images: lossless JPEG 2000 (HTJ2K); needs hdf5plugin 7.1 or later
_open_shards: "weakref.WeakKeyDictionary[Shard, None]" = weakref.WeakKeyDictionary()
"""Shards of this process whose file is open, in the order of opening."""


def open_hdf5(path: str | Path, mode: str = "r", **keywords: object) -> h5py.File:
    """Open an HDF5 file without a lock, as some file systems refuse locks. Atomic writing needs none."""
    return h5py.File(path, mode, locking=False, **keywords)


def pack(mask: np.ndarray) -> np.ndarray:
    """Pack a mask, bool (..., H, W), into uint8 (..., H, W / 8), eight pixels per byte."""
    return np.packbits(mask, axis=-1)


def unpack(packed: np.ndarray) -> np.ndarray:
    """Unpack a mask, uint8 (..., H, W / 8), into bool (..., H, W)."""
    return np.unpackbits(packed, axis=-1).view(bool)


def mask_id(study_id: str, packed: np.ndarray) -> str:
    """Return a mask's id, a hash of its study id and its packed pixels. Equal masks of a study have the same id."""
    return "m" + hashlib.blake2b(study_id.encode() + packed.tobytes()).hexdigest()[:16]


def _texts(texts: list[str] | tuple[str, ...]) -> np.ndarray:
    """Return texts as an array of fixed-length UTF-8, because HDF5 gives strings of variable length no checksum."""
    coded = [text.encode() for text in texts]
    return np.array(coded, dtype=h5py.string_dtype("utf-8", max([1, *map(len, coded)])))


def _set_attribute(target: h5py.File | h5py.Dataset, name: str, value: object) -> None:
    if isinstance(value, (list, tuple)):
        value = _texts(value)
    target.attrs[name] = _texts([value]).reshape(()) if isinstance(value, str) else value


def _plain(value: object) -> object:
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


class ShardWriter:
    """Writer of a shard, row by row, for use inside ``with``. The file appears only when the block succeeds.

    The first row defines the fields. ``key`` is the name of the row id (``image_id`` or ``mask_id``). Bool arrays are
    packed, eight pixels per byte. A packed field also accepts rows that are already packed (uint8).
    ``attrs`` become attributes of the file. ``labels``, the names of the masks in a row, become an attribute of each
    packed field. ``units`` is {field: unit}. ``pictures`` names the uint8 fields that are images, which get an image
    codec. ``empty`` is {field: (row shape, dtype)} of the fields to create at once, even if no row follows.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        key: str = "image_id",
        attrs: dict | None = None,
        labels: list[str] | tuple[str, ...] | None = None,
        units: dict[str, str] | None = None,
        pictures: tuple[str, ...] = (),
        empty: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] | None = None,
    ):
        self.key, self.attrs, self.labels = key, attrs or {}, labels
        self.units, self.pictures, self.empty = units or {}, pictures, empty or {}
        self._atomic = atomic_file(path)
        self._ids: list[str] = []
        self._room = 0
        self._fields: dict[str, tuple[h5py.Dataset, bool]] = {}

    def __enter__(self) -> "ShardWriter":
        with ExitStack() as entered:
            path = entered.enter_context(self._atomic)
            # A fixed superblock and no time stamps: the same rows give the same bytes.
            self._file = entered.enter_context(open_hdf5(path, "w", libver=("v110", "v110")))
            for name, (shape, dtype) in self.empty.items():
                self._create(name, shape, np.dtype(dtype))
            entered.push(self._finish)
            self._opened = entered.pop_all()
        return self

    def _create(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        packed = dtype.kind == "b"
        if packed:
            shape, dtype = (*shape[:-1], shape[-1] // 8), np.dtype(np.uint8)
        big = int(np.prod(shape)) * dtype.itemsize >= 1024
        codec = MASK if packed else PICTURE if name in self.pictures else MAP
        how = {"dtype": dtype, "fletcher32": True, "track_times": False, "chunks": (1 if big else 256, *shape)}
        how |= dict(codec) if big else {}
        data = self._file.create_dataset(name, shape=(0, *shape), maxshape=(None, *shape), **how)
        data.attrs["packed"] = packed
        self._fields[name] = data, packed
        if packed and self.labels is not None:
            _set_attribute(data, "labels", self.labels)
        if name in self.units:
            _set_attribute(data, "units", self.units[name])

    def append(self, row_id: str, **arrays: np.ndarray) -> None:
        """Add one row, for example ``append("img1", mask=bool_array, image=uint8_array)``."""
        row, arrays = len(self._ids), {name: np.asarray(value) for name, value in arrays.items()}
        for name, value in arrays.items():
            if name not in self._fields:
                self._create(name, value.shape, value.dtype)
        if row == self._room:
            self._resize(max(16, 2 * row))  # each resize takes as long as writing a mask
        for name, value in arrays.items():
            data, packed = self._fields[name]
            data[row] = pack(value) if packed and value.dtype.kind == "b" else value
        self._ids.append(row_id)

    def _resize(self, rows: int) -> None:
        self._room = rows
        for data, _ in self._fields.values():
            data.resize(rows, axis=0)

    def __exit__(self, kind, error, trace) -> bool | None:
        return self._opened.__exit__(kind, error, trace)

    def _finish(self, kind, *_: object) -> None:
        if kind is not None:
            return
        self._resize(len(self._ids))
        self._file.create_dataset(
            self.key, data=_texts(self._ids), maxshape=(None,), chunks=(256,), fletcher32=True, track_times=False
        )
        for name, value in ({"frame": FRAME} | self.attrs).items():
            _set_attribute(self._file, name, json.dumps(value, sort_keys=True) if isinstance(value, dict) else value)


class Shard:
    """Reader of a shard, row by row with bounded memory, for use inside ``with``.

    If the process has too many files open, other shards close their files and reopen them at their next read.
    """

    def __init__(self, path: str | Path, key: str = "image_id"):
        self.path, self.key = Path(path), key

    def __enter__(self) -> "Shard":
        try:
            self._open()
            self.ids: list[str] = list(self._file[self.key].asstr()[:])
        except (OSError, KeyError) as error:
            raise unreadable_file_error(self.path, error) from None
        self.row_of = {row_id: row for row, row_id in enumerate(self.ids)}
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self.row_of

    def _open(self) -> None:
        while True:
            try:
                self._file = open_hdf5(self.path)
                break
            except OSError as error:
                if error.errno != errno.EMFILE or not _open_shards:
                    raise
                for shard in list(_open_shards)[: (len(_open_shards) + 1) // 2]:
                    shard._close()
        _open_shards[self] = None
        # look up all datasets once: a lookup per row would take as long as reading the row
        datasets = {name: self._file[name] for name in self._file if name != self.key}
        self._fields = {name: (data, bool(data.attrs.get("packed"))) for name, data in datasets.items()}

    def _close(self) -> None:
        _open_shards.pop(self, None)
        self._file.close()

    def _opened(self) -> dict[str, tuple[h5py.Dataset, bool]]:
        """Return {field: (dataset, whether it is packed)}. Reopen the file if another shard has closed it."""
        if not self._file:
            try:
                self._open()
            except (OSError, KeyError) as error:
                raise unreadable_file_error(self.path, error) from None
        return self._fields

    @property
    def attrs(self) -> dict:
        """Attributes of the file as Python values."""
        self._opened()
        return {name: _plain(value) for name, value in self._file.attrs.items()}

    def labels(self, field: str = "mask") -> list[str]:
        """Return the names of the masks that each row of a packed field has, in their order."""
        return [str(_plain(label)) for label in self._opened()[field][0].attrs["labels"]]

    @property
    def fields(self) -> frozenset[str]:
        """Names of the shard's fields, without the row id."""
        return frozenset(self._fields)

    def shape(self, field: str = "mask") -> tuple[int, ...]:
        """Return the shape of the array that :meth:`get` returns for a field."""
        data, packed = self._opened()[field]
        return (*data.shape[1:-1], data.shape[-1] * (8 if packed else 1))

    def stored(self, field: str, row_id: str) -> np.ndarray:
        """Return one row of a field as stored (eight pixels per byte if packed). Raises the errors of :meth:`get`."""
        try:
            return self._opened()[field][0][self.row_of[row_id]]
        except OSError as error:
            raise unreadable_file_error(self.path, error) from None

    def get(self, field: str, row_id: str) -> np.ndarray:
        """Return one row of a field, unpacked. Raises KeyError for an unknown id, StoreError for a damaged file."""
        value = self.stored(field, row_id)
        return unpack(value) if self._fields[field][1] else value

    def masks(self, row_id: str, field: str = "mask") -> dict[str, np.ndarray]:
        """Return the masks of one row, {label: bool (H, W)}."""
        return dict(zip(self.labels(field), self.get(field, row_id), strict=True))


class Shards:
    """Reader of rows from several shards, each opened once, for use inside ``with``."""

    def __init__(self, paths: Sequence[str], key: str = "image_id"):
        self._paths = [paths] if isinstance(paths, str) else list(paths)
        self._key = key

    def __enter__(self) -> "Shards":
        with ExitStack() as entered:
            opened = [entered.enter_context(Shard(path, self._key)) for path in self._paths]
            self._of = {name: shard for shard in opened for name in shard.ids}
            self._opened = entered.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def __contains__(self, name: str) -> bool:
        return name in self._of

    @property
    def ids(self) -> list[str]:
        """Ids of all rows, sorted."""
        return sorted(self._of)

    def shard_of(self, name: str) -> Shard:
        """Return the shard that has the row ``name``. Raises StoreError if none has it."""
        if name not in self._of:
            raise StoreError(f"no shard has the row {name}, so the shards are of another run: run snakemake again")
        return self._of[name]

    def get(self, field: str, name: str) -> np.ndarray:
        """Return one row of a field. Raises the errors of :meth:`shard_of` and :meth:`Shard.get`."""
        return self.shard_of(name).get(field, name)
