"""Reading a PyTorch checkpoint that contains modules, without importing or calling the code that it names.

Each class or function that it names becomes a :class:`Stub`, which does nothing. This module is passed to
``torch.load`` as ``pickle_module``, which must have an ``Unpickler`` and a function ``load``.
"""

import pickle
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch

from cxr.base.errors import UserError, refuse_machine_fault

STREAM_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # start of the older plain stream: a pickled number
DEEPEST = 100  # maximum nesting depth of modules
WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")  # modules in which training code wraps a net
BUILTINS = (set, frozenset, list, dict, tuple, int, float, complex, bool, str, slice)
INERT = (
    "_codecs", "argparse", "collections", "copyreg", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "logging", "pathlib", "random", "re", "time", "types", "typing", "uuid",
)  # fmt: skip
"""Modules of the standard library whose objects a checkpoint may contain besides its network."""
INERT_BUILTINS = ("bytearray", "bytes", "getattr", "object", "range")
EXPANDED = 2**26  # maximum number of values in a tensor that is larger than its storage


class Stub:
    """A placeholder for an object of an unknown class. It keeps the object's attributes, but no items or methods."""

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
        """Name of the original class, without its module."""
        return self.kind.rpartition(".")[2]

    @property
    def children(self) -> dict:
        """{name: submodule} of a module; empty for any other object."""
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
"""{(module, name) in a pickle: object that replaces it}. ``torch.load`` itself resolves typed storages."""


class Unpickler(pickle.Unpickler):
    """An unpickler that replaces classes and functions by stubs, except dtypes and those listed in :data:`NAMES`."""

    def find_class(self, module: str, name: str) -> object:
        module = "builtins" if module == "__builtin__" else module
        if (module, name) in NAMES:
            return NAMES[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.partition(".")[0] in sys.stdlib_module_names and not (
            module in INERT or (module == "builtins" and name in INERT_BUILTINS)
        ):
            # it would be harmless as a stub, but it shows that the file is malicious
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no network needs but an attack may use")
        # an empty module name keeps torch.load from comparing source code with the file
        return type("Stub", (Stub,), {"kind": f"{module}.{name}", "__module__": ""})


def load(file, encoding: str = "utf-8") -> object:
    """Unpickle an object, as ``pickle.load`` does, but with :class:`Unpickler`."""
    return Unpickler(file, encoding=encoding).load()


def refuse(path: Path, fault: str) -> NoReturn:
    """Raise UserError because a file cannot be used as weights. ``fault``: the reason, as a clause."""
    fault = " ".join(fault.split())
    raise UserError(f"{path} cannot be used: {fault}: delete it and get it again (docs/how-to/models.md)")


def read_checkpoint(path: Path) -> object:
    """Read a checkpoint of ``torch.save``; return its root object, made of plain objects, :class:`Stub` and tensors.

    Tensors of an archive stay in the file until they are used. Tensors in the format of PyTorch < 1.6 are read at once.
    Raises UserError if the file is not a checkpoint, damaged or malicious.
    """
    try:
        is_archive = zipfile.is_zipfile(path)
        if is_archive:
            with zipfile.ZipFile(path) as archive:
                if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                    refuse(path, "its archive is compressed, which PyTorch never does")
                if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                    raise ValueError("it is a TorchScript program")
                if damaged := archive.testzip():
                    raise ValueError(f"Bad CRC-32 for {damaged}")
        else:
            with open(path, "rb") as file:
                if not file.read(len(STREAM_START)) == STREAM_START:
                    raise ValueError("its first bytes are wrong")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about missing source code
            return torch.load(path, "cpu", pickle_module=sys.modules[__name__], weights_only=False, mmap=is_archive)
    except UserError:
        raise
    except Exception as error:  # a damaged or malicious file fails in many ways
        if isinstance(error, OSError):  # only OSError: a damaged length looks like a lack of memory
            refuse_machine_fault(path, error)
        refuse(path, f"it is not a complete PyTorch checkpoint ({error})")


def read_state(path: Path, module: Stub) -> dict[str, torch.Tensor]:
    """Return a module's state dict: {dotted name: parameter or persistent buffer}. Raises UserError if it has none."""
    state = {}
    try:
        for prefix, inner in named_modules(module):
            passing = inner.state.get("_non_persistent_buffers_set") or ()
            for kind in ("_parameters", "_buffers"):
                for name, tensor in (inner.state.get(kind) or {}).items():
                    if isinstance(tensor, torch.Tensor) and name not in passing:
                        state[f"{prefix}.{name}".lstrip(".")] = tensor
    except (AttributeError, TypeError, ValueError) as error:
        refuse(path, f"its modules cannot be read ({error})")
    return state or refuse(path, "it holds no network")


def find_network(path: Path, root: object) -> Stub:
    """Return a YOLO checkpoint's network: "ema" (averaged weights), else "model". Raises UserError if it has none."""
    entries = root if isinstance(root, dict) else {}
    for network in (entries.get("ema"), entries.get("model")):
        if isinstance(network, Stub) and network.children:
            return unwrap_network(network)
    refuse(path, "it holds no network")


def unwrap_network(module: Stub) -> Stub:
    """Return the net inside wrapper modules (``WRAPPERS``), or the module itself if it is not a wrapper."""
    while module.name in WRAPPERS and len(module.children) == 1:
        (module,) = module.children.values()
    return module


def named_modules(module: Stub, path: str = "", depth: int = 0) -> Iterator[tuple[str, Stub]]:
    """Yield (dotted path, module) for ``module`` and all modules in it. Raises ValueError if one contains itself."""
    if depth > DEEPEST:
        raise ValueError("one of its modules contains itself")
    yield path, module
    for name, child in module.children.items():
        if isinstance(child, Stub):
            yield from named_modules(child, f"{path}.{name}".lstrip("."), depth + 1)
