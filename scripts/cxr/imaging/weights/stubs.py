"""The ``pickle_module`` of ``torch.load`` that runs no code of a file: it replaces all names but those of tensors."""

import pickle
import sys
from collections import OrderedDict

import torch

BUILTINS = (set, frozenset, list, dict, tuple, int, float, complex, bool, str, slice)
INERT = (
    "_codecs", "argparse", "collections", "copyreg", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "logging", "pathlib", "random", "re", "time", "types", "typing", "uuid",
)  # fmt: skip
"""Modules of the standard library whose objects a checkpoint may hold besides its network."""
INERT_BUILTINS = ("bytearray", "bytes", "getattr", "object", "range")
EXPANDED = 2**26  # largest number of values in a tensor that repeats the values of a smaller storage


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


def _rebuild(storage: torch.TypedStorage, offset: int, shape: tuple, stride: tuple, *_: object) -> torch.Tensor:
    stored = torch.empty(0, dtype=storage.dtype).set_(storage.untyped())
    if torch.Size(shape).numel() > max(len(stored), EXPANDED):
        raise pickle.UnpicklingError("a tensor is larger than its storage")
    return stored.as_strided(shape, stride, offset)


def _rebuild_bytes(
    storage: torch.TypedStorage, offset: int, shape: tuple, stride: tuple, grad: bool, hooks: object,
    dtype: torch.dtype, *_: object,
) -> torch.Tensor:  # fmt: skip
    typed = torch.storage.TypedStorage(wrap_storage=storage.untyped(), dtype=dtype, _internal=True)
    return _rebuild(typed, offset, shape, stride)


def _rebuild_subclass(function: object, kind: object, arguments: tuple, _: object) -> torch.Tensor:
    if function not in (_rebuild, _rebuild_bytes, _keep_data):
        raise pickle.UnpicklingError("it holds a tensor of an unknown kind")
    return function(*arguments)


def _keep_data(data: torch.Tensor, *_: object) -> torch.Tensor:
    return data


NAMES: dict[tuple[str, str], object] = {
    **{("builtins", kind.__name__): kind for kind in BUILTINS},
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): tuple,
    ("torch.storage", "UntypedStorage"): torch.UntypedStorage,
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_bytes,
    ("torch._utils", "_rebuild_parameter"): _keep_data,
    ("torch._utils", "_rebuild_parameter_with_state"): _keep_data,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_subclass,
}
"""What stands for a name (module, name) of a pickle; ``torch.load`` itself finds the typed storages."""


class Unpickler(pickle.Unpickler):
    """Turns every name in a pickle into a stub, except for :data:`NAMES` and dtypes."""

    def find_class(self, module: str, name: str) -> object:
        module = "builtins" if module == "__builtin__" else module
        if (module, name) in NAMES:
            return NAMES[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.partition(".")[0] in sys.stdlib_module_names and not (
            module in INERT or (module == "builtins" and name in INERT_BUILTINS)
        ):
            # it would do nothing here, but it shows that the file is malicious
            raise pickle.UnpicklingError(f"it names {module}.{name}, as no network does but an attack may")
        # of no module, so that torch.load does not compare its source code with that in the file
        return type("Stub", (Stub,), {"kind": f"{module}.{name}", "__module__": ""})


def load(file, encoding: str = "utf-8") -> object:
    """Return the object of a pickle, as ``pickle.load`` does."""
    return Unpickler(file, encoding=encoding).load()
