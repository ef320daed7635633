"""Reading a PyTorch checkpoint that holds whole modules, without importing or calling anything that it names.

Each class or function in it becomes a :class:`~cxr.imaging.weights.stubs.Stub`, which does nothing.
"""

import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.imaging.weights import stubs
from cxr.imaging.weights.stubs import Stub

STREAM_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # pickled number with which the older plain stream begins
DEEPEST = 100  # largest nesting depth of modules
WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")  # modules in which training code wraps a net


def refuse(path: Path, fault: str) -> NoReturn:
    """Raise UserError: a file cannot be used as weights."""
    fault = " ".join(fault.split())
    raise UserError(f"{path} cannot be used: {fault}: delete it and get it again (docs/how-to/models.md)")


def read_checkpoint(path: Path) -> object:
    """Return the root of a checkpoint of ``torch.save``: plain objects, :class:`Stub` and tensors.

    The tensors of an archive stay in the file until they are used; those of the older plain stream are read. Raises
    UserError for any other, damaged or malicious file.
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
                    raise ValueError("it begins like none")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing source code
            return torch.load(path, "cpu", pickle_module=stubs, weights_only=False, mmap=is_archive)
    except UserError:
        raise
    except Exception as error:  # a damaged or malicious file fails in many ways
        if isinstance(error, OSError):  # a damaged length looks like a lack of memory
            refuse_machine_fault(path, error)
        refuse(path, f"it is no whole PyTorch checkpoint ({error})")


def read_state(path: Path, module: Stub) -> dict[str, torch.Tensor]:
    """Return a module's state dict: parameters and persistent buffers by dotted name. Raises UserError without any."""
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
    """Return the network of a YOLO checkpoint: "ema", the average of a training, or "model". Raises UserError."""
    entries = root if isinstance(root, dict) else {}
    for network in (entries.get("ema"), entries.get("model")):
        if isinstance(network, Stub) and network.children:
            return unwrap_network(network)
    refuse(path, "it holds no network")


def unwrap_network(module: Stub) -> Stub:
    """Return the net inside a module in ``WRAPPERS``, else the module itself."""
    while module.name in WRAPPERS and len(module.children) == 1:
        (module,) = module.children.values()
    return module


def named_modules(module: Stub, path: str = "", depth: int = 0) -> Iterator[tuple[str, Stub]]:
    """Yield (dotted path, module) of a module ("") and all modules inside it. Raises ValueError for a cycle."""
    if depth > DEEPEST:
        raise ValueError("its modules hold one another")
    yield path, module
    for name, child in module.children.items():
        if isinstance(child, Stub):
            yield from named_modules(child, f"{path}.{name}".lstrip("."), depth + 1)
