"""Reading a PyTorch checkpoint that holds whole modules, without importing or calling anything that it names.

Each class or function in it becomes a :class:`~cxr.imaging.weights.stubs.Stub`, which does nothing, and a tensor a
description until :meth:`Saved.reading` reads it. Both containers of ``torch.save`` are read: the archive (since PyTorch
1.6) and the older plain stream. Source: the format as documented in torch.serialization.
"""

import io
import mmap
import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import broken_part
from cxr.imaging.weights.stubs import Array, Storage, Stub, Unpickler
from cxr.nets import tensors

MAGIC = 0x1950A86A20F9469CFC6C  # first number of the plain stream
FOREIGN = "it was saved on a big-endian machine"
DEEPEST = 100  # largest nesting depth of modules
PIECE = 2**20  # bytes that are read at a time
EXPANDED = 2**26  # largest number of values in a tensor that repeats the values of a smaller storage
WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")
"""Modules in which training code wraps a net."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint: ``root`` consists of plain objects, :class:`Stub` and :class:`Array`."""

    path: Path
    root: object
    offsets: dict[str, int] | None  # offset of each storage in a plain stream; None for an archive

    def arrays(self, module: Stub) -> dict[str, Array]:
        """Return the contents of a module's state dict: parameters and persistent buffers by their dotted names.

        Raises UserError if the module holds none.
        """
        array_by_name = {}
        try:
            for path, inner in named_modules(module):
                passing = inner.state.get("_non_persistent_buffers_set") or ()
                for kind in ("_parameters", "_buffers"):
                    for name, array in (inner.state.get(kind) or {}).items():
                        if isinstance(array, Array) and name not in passing:
                            array_by_name[f"{path}.{name}".lstrip(".")] = array
        except FAULTS as error:
            refuse(self.path, f"its modules cannot be read ({error})")
        return array_by_name or refuse(self.path, "it holds no network")

    @contextmanager
    def reading(self) -> Iterator[Callable[[Array], torch.Tensor]]:
        """Yield a function that reads an array's tensor; one storage of the file is in memory at a time.

        Tensors of one storage share its memory. Raises UserError if a tensor does not fit the file.
        """
        storage_by_key: dict[str, torch.Tensor] = {}

        def tensor(array: Array) -> torch.Tensor:
            try:
                key = array.storage.key
                if key not in storage_by_key:
                    storage_by_key.clear()
                    storage_by_key[key] = self._storage(file, archive, array.storage)
                return self._tensor(storage_by_key[key], array)
            except (*FAULTS, zipfile.BadZipFile) as error:
                if isinstance(error, OSError) and broken_part(error):
                    raise
                refuse(self.path, f"a tensor does not fit the file ({error})")

        with open(self.path, "rb") as file:
            archive = zipfile.ZipFile(file) if self.offsets is None else None
            yield tensor

    def tensor(self, array: Array) -> torch.Tensor:
        """Return one tensor of the file. Raises like :meth:`reading`."""
        with self.reading() as tensor:
            return tensor(array).clone()

    def _storage(self, file: io.IOBase, archive: zipfile.ZipFile | None, storage: Storage) -> torch.Tensor:
        """Read the numbers of a storage into separate memory, in pieces, because some have gigabytes."""
        if not storage.count:
            return torch.empty(0, dtype=storage.dtype)
        # mapped memory returns to the system with the tensor; malloc would keep as much again as the tensors
        room = mmap.mmap(-1, storage.count * storage.dtype.itemsize)
        if not archive:
            file.seek(self.offsets[storage.key])
            read, place = file.readinto(room), len(room)
        else:
            read = place = 0
            with archive.open(_member(archive, f"data/{storage.key}")) as member:
                while piece := member.read(PIECE):  # the archive verifies its checksum at the end
                    read += len(piece)
                    room[place : place + len(piece)] = piece
                    place = read
        if read != len(room):
            raise ValueError(f"storage {storage.key} is cut off")
        return torch.frombuffer(room, dtype=storage.dtype)

    @staticmethod
    def _tensor(storage: torch.Tensor, array: Array) -> torch.Tensor:
        count = torch.Size(array.shape).numel()
        if count > max(array.storage.count, EXPANDED):
            raise ValueError("it is larger than its storage")
        if not array.storage.count:
            return torch.zeros(array.shape, dtype=array.storage.dtype)
        return storage.as_strided(array.shape, array.stride, array.offset)


FAULTS = (
    pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError,
    OSError, RecursionError, RuntimeError, TypeError, UnicodeError, ValueError,
)  # fmt: skip
"""Errors that a damaged or malicious file can raise while it is read."""


def refuse(path: Path, fault: str) -> NoReturn:
    """Raise UserError: a file cannot be used as weights."""
    fault = " ".join(fault.split())
    raise UserError(f"{path} cannot be used: {fault}: delete it and get it again (docs/how-to/models.md)")


def read_checkpoint(path: str | Path) -> Saved:
    """Read a checkpoint of ``torch.save``. Raises UserError for any other, damaged or malicious file."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                        refuse(path, "its archive is compressed, which PyTorch never does")
                    # the numbers are read from the archive without decompression
                    order = [name for name in archive.namelist() if name.endswith("/byteorder")]
                    if order and archive.read(order[0]) != b"little":
                        raise ValueError(FOREIGN)
                    pickled = io.BytesIO(archive.read(_member(archive, "data.pkl")))
                    return Saved(path, Unpickler(pickled).load(), None)
            file.seek(0)
            return Saved(path, *_stream(file))
    except (*FAULTS, zipfile.BadZipFile) as error:
        if isinstance(error, OSError):  # a damaged length looks like a lack of memory
            refuse_machine_fault(path, error)
        refuse(path, f"it is no whole PyTorch checkpoint ({error})")


def _member(archive: zipfile.ZipFile, name: str) -> str:
    folder = archive.namelist()[0].partition("/")[0] if archive.namelist() else ""
    return archive.getinfo(f"{folder}/{name}").filename


def _stream(file: io.BufferedReader) -> tuple[object, dict[str, int]]:
    if Unpickler(file).load() != MAGIC:
        raise ValueError("it begins like none")
    _, machine = Unpickler(file).load(), Unpickler(file).load()
    if not machine["little_endian"]:
        raise ValueError(FOREIGN)
    reader = Unpickler(file)
    root, keys = reader.load(), Unpickler(file).load()
    offsets, begin = {}, file.tell()
    for key in map(str, keys):
        storage = reader.storages[key]
        if storage.dtype is None:
            raise ValueError("it holds numbers of an unknown kind")
        file.seek(begin)
        if int.from_bytes(file.read(8), "little") != storage.count:
            raise ValueError(f"storage {key} has another length")
        offsets[key] = begin + 8
        begin = offsets[key] + storage.count * storage.dtype.itemsize
    return root, offsets


def find_network(saved: Saved) -> Stub:
    """Return the network of a YOLO checkpoint: its entry "model", or "ema", the running average of a training.

    Raises UserError if there is none.
    """
    entries = saved.root if isinstance(saved.root, dict) else {}
    for network in (entries.get("ema"), entries.get("model")):
        if isinstance(network, Stub) and network.children:
            return unwrap_network(network)
    refuse(saved.path, "it holds no network")


def unwrap_network(module: Stub) -> Stub:
    """Return the net inside a module in ``WRAPPERS``, else the module itself."""
    while module.name in WRAPPERS and len(module.children) == 1:
        (module,) = module.children.values()
    return module


def write_network(target: Path, saved: Saved, network: Stub, facts: dict) -> dict[str, int]:
    """Write the state dict of a net, floats as float32, with facts; return the numbers of tensors and values.

    One tensor is in memory at a time.
    """
    arrays = saved.arrays(network)
    kinds = {name: (array.shape, array.storage.dtype) for name, array in arrays.items()}
    with saved.reading() as tensor:
        return tensors.write_weights(target, kinds, lambda name: tensor(arrays[name]), facts)


def named_modules(module: Stub, path: str = "", depth: int = 0) -> Iterator[tuple[str, Stub]]:
    """Yield (dotted path, module) of a module ("") and all modules inside it. Raises ValueError for a cycle."""
    if depth > DEEPEST:
        raise ValueError("its modules hold one another")
    yield path, module
    for name, child in module.children.items():
        if isinstance(child, Stub):
            yield from named_modules(child, f"{path}.{name}".lstrip("."), depth + 1)


def to_json_value(value: object) -> object:
    """Return settings of a checkpoint as JSON values. Raises ValueError for any other value."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Array | Storage):
        return [to_json_value(item) for item in value]
    kind = value.kind if isinstance(value, Stub) else type(value).__name__
    raise ValueError(f"it holds {kind} where a plain value belongs")
