"""Shards in HDF5 and small tables: written whole or not at all, one chunk per image, readable by anyone.

Ten lines suffice without this module::

    import h5py, hdf5plugin, numpy as np
    with h5py.File("results/organs/00.h5") as f:
        names = f["image_id"].asstr()[:]
        labels = f["mask"].attrs["labels"].astype(str)
        packed = f["mask"][0]                          # (K, 512, 64) uint8, eight pixels a byte
        mask = np.unpackbits(packed, axis=-1).astype(bool)   # (K, 512, 512)

The codecs are those that were smallest among the fast in ``benchmarks/storage.py`` (docs/benchmarks.md). HDF5 notes in
each dataset how it is compressed: files of other codecs are read alike.
"""

import glob
import hashlib
import io
import itertools
import json
import os
import platform
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import polars as pl

from ils.core.formulas import guarded, unguarded
from ils.core.labels import REASONS

HOST = platform.node().partition(".")[0]
"""Name of this computer: process numbers are its own, and a shared folder has many writers."""
LEFT_S = 86400
"""After this time without a change, what another computer was writing is taken for left behind, seconds."""
FRAME_SIZE = 512
"""Side of the canonical frame, px."""
FRAME = (
    f"{FRAME_SIZE} x {FRAME_SIZE} pixels; sides are the patient's: right is on the image's left; "
    "frames hold to_original, the way back"
)

MASK = hdf5plugin.Zstd(clevel=3)
"""Codec of packed masks."""
MAP = hdf5plugin.Zstd(clevel=14)
"""Codec of what is mostly zero and made by a net, beside which the slower writing does not count."""
PICTURE = hdf5plugin.Htj2k()
"""Codec of grey pictures: lossless High-Throughput JPEG 2000. hdf5plugin reads it from version 7.1 on."""

DIGEST = "digest"
"""Where a Parquet file holds a digest of itself, for polars gives pages no checksum."""
BLANK = "0" * 32
"""What stands for a Parquet file's digest while that is made."""
BEFORE_DIGEST = b"\x18%c%b\x18%c" % (len(DIGEST), DIGEST.encode(), len(BLANK))
"""What comes before the digest in a Parquet file: its name and, as Thrift writes them, both lengths."""
CRC = "crc32"
"""Last key of a checked JSON line: CRC-32 of the line before it, eight hexadecimal digits."""


class StoreError(Exception):
    """A file of ours is missing, damaged or of another kind; the message names it and the remedy.

    ``damaged`` is the file that cannot be what was once written whole: a checksum or the format is broken, it is not
    that reading failed.
    """

    damaged: Path | None = None


def _unreadable(path: Path, error: Exception) -> StoreError:
    if not path.is_file():
        return StoreError(f"{path} is missing: run again")
    found = StoreError(f"{path} is damaged: delete it and run again ({error})")
    # an error with a number is the file system's: the file may be whole
    if getattr(error, "errno", None) is None and "errno = " not in str(error):
        found.damaged = path
    return found


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path)
    temporary = path.with_name(f".{path.name}.{HOST}.{os.getpid()}.part")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def clear(path: Path) -> None:
    """Remove what killed jobs left of a file or folder: they could not, and it fills the disk."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        *_, host, process, _ = left.name.split(".")
        gone = host == HOST and Path("/proc/self").exists() and not Path(f"/proc/{process}").exists()
        if gone or not _changed_lately(left):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _changed_lately(left: Path) -> bool:
    below = (Path(root) / name for root, folders, files in os.walk(left) for name in [*folders, *files])
    try:
        return any(path.lstat().st_mtime >= time.time() - LEFT_S for path in itertools.chain([left], below))
    except FileNotFoundError:  # just removed or renamed by who made it
        return True


def pack(mask: np.ndarray) -> np.ndarray:
    """Pack bool (..., H, W) into uint8 (..., H, W / 8)."""
    return np.packbits(mask, axis=-1)


def unpack(packed: np.ndarray) -> np.ndarray:
    """Unpack uint8 (..., H, W / 8) into bool (..., H, W)."""
    return np.unpackbits(packed, axis=-1).view(bool)


def mask_id(study_id: str, packed: np.ndarray) -> str:
    """Name a packed mask by its study and content, so that equal masks share it and it says nothing of shards."""
    return "m" + hashlib.blake2b(study_id.encode() + packed.tobytes()).hexdigest()[:16]


def _texts(texts: list[str] | tuple[str, ...]) -> np.ndarray:
    """Return texts as an array of one length (UTF-8).

    HDF5 keeps texts of any length apart from the rest and without a checksum: a lost bit there could give a row another
    image's name, or make HDF5 read for ever.
    """
    coded = [text.encode() for text in texts]
    return np.array(coded, dtype=h5py.string_dtype("utf-8", max([1, *map(len, coded)])))


def _tell(what: h5py.File | h5py.Dataset, name: str, value: object) -> None:
    """Set an attribute."""
    if isinstance(value, (list, tuple)):
        value = _texts(value)
    what.attrs[name] = _texts([value]).reshape(()) if isinstance(value, str) else value


def _plain(value: object) -> object:
    """Return an attribute as a builtin."""
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


class ShardWriter:
    """Append rows to a shard. Use inside ``with``: the file appears under its name only when the block succeeds.

    Fields are made from the first row; ``key`` names the row id (``image_id`` or ``mask_id``). A bool array is stored
    packed; a packed field also takes rows that are packed already (uint8).
    ``attrs`` are written on the file, ``labels`` on each packed field, ``units`` on each field named; ``pictures``
    names the uint8 fields that are pictures, for their codec.
    An empty shard is valid: give ``empty`` = {field: (row shape, dtype)} so that its datasets exist.
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
        empty: dict[str, tuple[tuple[int, ...], object]] | None = None,
    ):
        self.key, self.attrs, self.labels = key, attrs or {}, labels
        self.units, self.pictures, self.empty = units or {}, pictures, empty or {}
        self._atomic = atomic(path)
        self._ids: list[str] = []
        self._room = 0
        self._fields: dict[str, tuple[h5py.Dataset, bool]] = {}

    def __enter__(self) -> "ShardWriter":
        with ExitStack() as entered:
            path = entered.enter_context(self._atomic)
            # A fixed superblock and no time stamps: the same rows give the same bytes.
            self._file = entered.enter_context(h5py.File(path, "w", libver=("v110", "v110")))
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
        data = self._file.create_dataset(
            name,
            shape=(0, *shape),
            maxshape=(None, *shape),
            chunks=(1 if big else 256, *shape),
            dtype=dtype,
            fletcher32=True,
            track_times=False,
            **(codec if big else {}),
        )
        data.attrs["packed"] = packed
        self._fields[name] = data, packed
        if packed and self.labels is not None:
            _tell(data, "labels", self.labels)
        if name in self.units:
            _tell(data, "units", self.units[name])

    def append(self, row_id: str, **arrays: np.ndarray) -> None:
        """Add one row: ``append("img1", mask=bool_array, image=uint8_array)``."""
        row, arrays = len(self._ids), {name: np.asarray(value) for name, value in arrays.items()}
        for name, value in arrays.items():
            if name not in self._fields:
                self._create(name, value.shape, value.dtype)
        if row == self._room:
            self._resize(max(16, 2 * row))  # a new size takes as long as a mask
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
            _tell(self._file, name, json.dumps(value, sort_keys=True) if isinstance(value, dict) else value)


class Shard:
    """Read a shard row by row with bounded memory. Use inside ``with``."""

    def __init__(self, path: str | Path, key: str = "image_id"):
        self.path, self.key = Path(path), key

    def __enter__(self) -> "Shard":
        try:
            self._file = h5py.File(self.path, "r")
            self.ids: list[str] = list(self._file[self.key].asstr()[:])
            # all at once: looking one up anew for each row would take as long as reading it
            fields = {name: self._file[name] for name in self._file if name != self.key}
            self._fields = {name: (data, bool(data.attrs.get("packed"))) for name, data in fields.items()}
        except (OSError, KeyError) as error:
            raise _unreadable(self.path, error) from None
        self.row_of = {row_id: row for row, row_id in enumerate(self.ids)}
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self.row_of

    @property
    def attrs(self) -> dict:
        """Attributes of the file as builtins."""
        return {name: _plain(value) for name, value in self._file.attrs.items()}

    def labels(self, field: str = "mask") -> list[str]:
        """Label names along the K axis of a packed field."""
        return [str(_plain(label)) for label in self._file[field].attrs["labels"]]

    def shape(self, field: str = "mask") -> tuple[int, ...]:
        """Shape of a row as :meth:`get` gives it."""
        data, packed = self._fields[field]
        return (*data.shape[1:-1], data.shape[-1] * (8 if packed else 1))

    def stored(self, field: str, row_id: str) -> np.ndarray:
        """Return one row of a field as it is stored (eight pixels a byte if packed). Raises like :meth:`get`."""
        try:
            return self._fields[field][0][self.row_of[row_id]]
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def get(self, field: str, row_id: str) -> np.ndarray:
        """Return one row of a field (a packed field as bool). Raises KeyError, or StoreError for a damaged chunk."""
        value = self.stored(field, row_id)
        return unpack(value) if self._fields[field][1] else value

    def masks(self, row_id: str, field: str = "mask") -> dict[str, np.ndarray]:
        """Return {label: bool (H, W)} of one row."""
        return dict(zip(self.labels(field), self.get(field, row_id), strict=True))


def write_table(path: str | Path, table: pl.DataFrame) -> None:
    """Write a Parquet (or, by its ending, TSV or CSV) table atomically, the same bytes for the same rows.

    In TSV and CSV a null and an empty text are the same empty cell, and formulas are guarded (``formulas``).
    """
    with atomic(path) as temporary:
        if Path(path).suffix == ".parquet":
            temporary.write_bytes(_with_digest(table))
        else:
            # polars would write an empty text as "" to tell it from null; people and spreadsheets do not
            plain = guarded(table.with_columns(pl.col(pl.String).replace("", None)))
            plain.write_csv(temporary, separator="\t" if Path(path).suffix == ".tsv" else ",")


def _with_digest(table: pl.DataFrame) -> bytes:
    """Return a Parquet file that holds a digest of itself, made with zeros in the digest's place: polars makes none."""
    file = io.BytesIO()
    table.write_parquet(file, compression="zstd", statistics=False, metadata={DIGEST: BLANK})
    data = file.getvalue()
    start = data.rindex(BEFORE_DIGEST) + len(BEFORE_DIGEST)
    return data[:start] + _hex(data).encode() + data[start + len(BLANK) :]


def _whole(data: bytes) -> bytes:
    """Return the bytes of a Parquet file. Raises ValueError where its digest, if it has one, is of others."""
    before, found, after = data.rpartition(BEFORE_DIGEST)
    told, after = after[: len(BLANK)], after[len(BLANK) :]
    if found and _hex(before + found + BLANK.encode() + after).encode() != told:
        raise ValueError("its digest is not that of its bytes")
    return data


def _hex(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_table(path: str | Path) -> pl.DataFrame:
    """Read a Parquet, TSV or CSV table; an empty cell of a text column of the latter two is "".

    Raises StoreError with one sentence if it cannot be read, or is a Parquet file of ours and not as it was written.
    """
    try:
        if Path(path).suffix == ".parquet":
            return pl.read_parquet(_whole(Path(path).read_bytes()))
        table = pl.read_csv(path, separator="\t" if Path(path).suffix == ".tsv" else ",")
        return unguarded(table.with_columns(pl.col(pl.String).fill_null("")))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise _unreadable(Path(path), error) from None


def write_lines(path: str | Path, rows: Iterator[dict] | list[dict], *, checked: bool = False) -> None:
    """Write JSON Lines atomically (UTF-8, keys in the order given); ``checked`` ends each line with its checksum."""
    texts = (json.dumps(row, ensure_ascii=False) for row in rows)
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines((_checked(text) if checked else text) + "\n" for text in texts)


def _checked(text: str) -> str:
    start = text.removesuffix("}")
    return f'{start}, "{CRC}": "{zlib.crc32(start.encode()):08x}"}}'


def read_lines(path: str | Path) -> Iterator[dict]:
    """Yield the objects of a JSON Lines file, without their checksums.

    Raises StoreError for a line that is no JSON or has another checksum.
    """
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError(f"line {number} is no object")
                if CRC in line and _checked(text.rpartition(f', "{CRC}"')[0] + "}") != text.removesuffix("\n"):
                    raise ValueError(f"line {number} is not as it was written")
                line.pop(CRC, None)
                yield line
    except (OSError, ValueError) as error:
        raise _unreadable(Path(path), error) from None


EXCLUDED_SCHEMA = dict.fromkeys(("image_id", "study_id", "stage", "reason", "detail"), pl.String)


def write_excluded(path: str | Path, rows: list[dict]) -> None:
    """Write a ledger: rows of image_id, study_id, stage, reason (a code of ``labels.REASONS``), detail."""
    unknown = {row["reason"] for row in rows} - REASONS.keys()
    if unknown:
        raise ValueError(f"unknown reason codes: {sorted(unknown)}")
    table = pl.DataFrame(rows, schema=EXCLUDED_SCHEMA)
    write_table(path, table.sort("image_id", "study_id", "reason", "detail"))
