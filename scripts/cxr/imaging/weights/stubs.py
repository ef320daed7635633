"""Unpickling without running code: every name becomes a stub, every tensor a description."""

import io
import pickle
import sys
from collections import OrderedDict
from typing import NamedTuple

import torch

BUILTINS = {kind.__name__: kind for kind in (set, frozenset, list, dict, tuple, int, float, complex, bool, str, slice)}
INERT = (
    "_codecs", "argparse", "collections", "copyreg", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "logging", "pathlib", "random", "re", "time", "types", "typing", "uuid",
)  # fmt: skip
"""Modules of the standard library whose objects a checkpoint may hold besides its network."""
INERT_BUILTINS = ("bytearray", "bytes", "getattr", "object", "range")
STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip


CLASSES: dict[tuple[str, str], object] = (
    {("builtins", name): kind for name, kind in BUILTINS.items()}
    | {("torch", name): dtype for name, dtype in STORAGES.items()}
    | {("collections", "OrderedDict"): OrderedDict, ("torch", "Size"): tuple}
    | {("torch.storage", "UntypedStorage"): torch.uint8}
)


class Stub:
    """An object of an unknown class: its attributes, without items or behaviour."""

    kind = ""

    def __new__(cls, *args: object, **keywords: object) -> "Stub":
        stub = super().__new__(cls)
        stub.state = {}
        return stub

    def __init__(self, *args: object, **keywords: object):
        pass

    def __setstate__(self, state: object) -> None:
        first = state[0] if isinstance(state, tuple) and state else state
        if isinstance(first, dict):
            self.state.update(first)

    def append(self, item: object) -> None:
        pass

    add = extend = append

    def __setitem__(self, key: object, value: object) -> None:
        pass

    @property
    def name(self) -> str:
        """Name of the class without its module."""
        return self.kind.rpartition(".")[2]

    @property
    def children(self) -> dict:
        """The modules inside this one by name; empty for an object that is not a module."""
        modules = self.state.get("_modules")
        items = modules.items() if isinstance(modules, dict) else ()
        return {name: child for name, child in items if child is not None}


class Storage(NamedTuple):
    """A storage of the file: number type (None if unsupported), name and number of values."""

    dtype: torch.dtype | None
    key: str
    count: int


class Array(NamedTuple):
    """Description of a tensor in the file, before it is read."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Unpickler(pickle.Unpickler):
    """Turns every name in a pickle into a stub, except for plain containers and the functions that make tensors."""

    def __init__(self, file: io.IOBase):
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> object:
        module = "builtins" if module == "__builtin__" else module
        if (module, name) in CLASSES:
            return CLASSES[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        maker = getattr(self, f"make{name}", None) if module in ("torch._utils", "torch._tensor") else None
        if maker:
            return maker
        if module.partition(".")[0] in sys.stdlib_module_names and not (
            module in INERT or (module == "builtins" and name in INERT_BUILTINS)
        ):
            # it would do nothing here, but it shows that the file is malicious
            raise pickle.UnpicklingError(f"it names {module}.{name}, as no network does but an attack may")
        return type("Stub", (Stub,), {"kind": f"{module}.{name}"})

    def persistent_load(self, pid: tuple) -> Storage | type:
        if pid[0] == "module":  # in a stream: a class with its source code
            return pid[1]
        tag, dtype, key, _, count, *view = pid
        if tag != "storage" or (view and view[0] is not None):
            raise pickle.UnpicklingError("it holds a storage of an unknown kind")
        self.storages[str(key)] = Storage(dtype if isinstance(dtype, torch.dtype) else None, str(key), int(count))
        return self.storages[str(key)]

    # "make" plus the name of the torch function in the pickle

    def make_rebuild_tensor(self, storage: Storage, offset: int, shape: tuple, stride: tuple, *_: object) -> Array:
        return Array(storage, offset, tuple(shape), tuple(stride))

    make_rebuild_tensor_v2 = make_rebuild_tensor

    def make_rebuild_tensor_v3(
        self, storage: Storage, offset: int, shape: tuple, stride: tuple, grad: bool, hooks: object, dtype: torch.dtype,
        *_: object,
    ) -> Array:  # fmt: skip
        """Make a tensor from untyped bytes."""
        typed = Storage(dtype, storage.key, storage.count // dtype.itemsize)
        return Array(typed, offset, tuple(shape), tuple(stride))

    def make_rebuild_parameter(self, data: Array, *_: object) -> Array:
        return data

    make_rebuild_parameter_with_state = make_rebuild_parameter

    def make_rebuild_from_type_v2(self, function: object, kind: object, arguments: tuple, _: object) -> Array:
        if getattr(function, "__self__", None) is not self:
            raise pickle.UnpicklingError("it holds a tensor of an unknown kind")
        return function(*arguments)
