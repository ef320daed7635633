"""Read weight files, also in several shards, one tensor at a time, and write them one shard at a time."""

import json
import pickle
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError, refuse_machine_fault, refuse_unreadable
from cxr.base.faults import is_not_from_input
from cxr.nets import tensors
from cxr.nets.tensors import Kinds, describe_misfit

INDEX_NAME = "model.safetensors.index.json"
_PATTERNS = ("*.safetensors", "pytorch_model*.bin", "*.pth", "*.pt")  # the first with a match is used


class WeightFiles:
    """Tensors of safetensors or torch files, read one at a time inside ``with``. ``shapes``: {name: shape}."""

    def __init__(self, *sources: str | Path):
        """``sources``: files, or folders that hold them."""
        self.sources = [Path(source) for source in sources]

    def __enter__(self) -> "WeightFiles":
        self._stack = ExitStack()
        self._get: dict[str, Callable[[], torch.Tensor]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        with ExitStack() as stack:
            for path in [path for source in self.sources for path in _list_weight_files(source)]:
                try:
                    self._open(path, stack)
                except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
                    refuse_machine_fault(path, error)
                    if is_not_from_input(error):
                        raise
                    fault = (str(error).splitlines() or [type(error).__name__])[0]
                    raise UserError(f"{path} is damaged or holds no weights: download it again ({fault})") from None
            self._stack = stack.pop_all()
        return self

    def _open(self, path: Path, stack: ExitStack) -> None:
        if path.suffix == ".safetensors":
            file = stack.enter_context(safe_open(path, "pt"))
            for name in file.keys():  # noqa: SIM118 (no mapping)
                self._add(path, name, tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
            return
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError as error:
            if "mmap" not in str(error):
                raise
            content = torch.load(path, map_location="cpu", weights_only=True)  # a file written by torch before 1.6
        if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
            raise UserError(f"{path} is not a dictionary of only tensors: download the published file")
        for name, tensor in content.items():
            self._add(path, name, tuple(tensor.shape), partial(content.__getitem__, name))

    def _add(self, path: Path, name: str, shape: tuple[int, ...], get: Callable[[], torch.Tensor]) -> None:
        if name in self.shapes:
            raise UserError(f"{path} and another file in its folder both hold the tensor {name}: remove one file")
        self.shapes[name], self._get[name] = shape, get

    def __exit__(self, *_: object) -> None:
        self._get.clear()
        self._stack.close()

    def get(self, name: str) -> torch.Tensor:
        return self._get[name]()

    def select_prefix(self, prefix: str) -> "WeightFiles":
        """Return a view of the tensors whose names begin with ``prefix``, without the prefix. Do not close the view."""
        part = WeightFiles(*self.sources)
        full_names = {name.removeprefix(prefix): name for name in self.shapes if name.startswith(prefix)}
        part.shapes = {short: self.shapes[name] for short, name in full_names.items()}
        part._get = {short: self._get[name] for short, name in full_names.items()}
        return part


def _list_weight_files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for pattern in _PATTERNS:
        if paths := sorted(source.glob(pattern)):
            for index in source.glob("*.index.json"):
                _check_complete(index, {path.name for path in paths}, pattern)
            return paths
    raise UserError(f"{source} holds no weights ({', '.join(_PATTERNS)}): correct the path or download weights")


def _check_complete(index: Path, file_names: set[str], pattern: str) -> None:
    """Raise UserError if ``index`` lists a shard with the suffix of ``pattern`` that is not in ``file_names``."""
    with refuse_unreadable(index, f"{index} is damaged", "download it again", KeyError, AttributeError):
        listed_shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    missing = sorted(name for name in listed_shards - file_names if Path(name).suffix == Path(pattern).suffix)
    if missing:
        raise UserError(f"{index.parent} lacks {missing[0]}, which {index.name} lists: download the file")


def write_shards(folder: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor], shard_bytes: int) -> None:
    """Write the tensors ``get(name)`` in shards of at most ``shard_bytes``, named and indexed as by transformers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plan = split_torch_state_dict_into_shards(
        # on the device meta, tensors have a size but no storage
        {name: torch.empty(shape, dtype=dtype, device="meta") for name, (shape, dtype) in sorted(kinds.items())},
        max_shard_size=shard_bytes,
    )
    for file, names in plan.filename_to_tensors.items():
        write_weight_file(folder / file, {name: kinds[name] for name in names}, get)
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": dict(sorted(plan.tensor_to_filename.items()))}
        write_json(folder / INDEX_NAME, index)
    for stale in folder.glob("model*.safetensors*"):
        if stale.name not in plan.filename_to_tensors and not (plan.is_sharded and stale.name == INDEX_NAME):
            stale.unlink()


def write_weight_file(path: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor]) -> None:
    """Write the tensors ``get(name)`` of all names in ``kinds``, made one at a time, into one safetensors file."""
    with atomic_file(path) as temporary:
        tensors.stream_tensors(temporary, kinds, get, {"format": "pt"})  # transformers requires this format


def write_json(path: Path, content: dict) -> None:
    """Write indented JSON with sorted keys."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def fill_module(part: torch.nn.Module, weights: WeightFiles, where: str, name_of: Callable[[str], str] = str) -> None:
    """Load a module's tensors one at a time. ``name_of`` converts a tensor's name to its name in the files. Raises
    UserError about ``where``, a description of the files, if names or shapes differ."""
    module_tensors = part.state_dict()
    expected_shapes = {name_of(name): tuple(tensor.shape) for name, tensor in module_tensors.items()}
    if fault := describe_misfit(expected_shapes, weights.shapes):
        raise UserError(f"{where} holds weights that do not fit the model ({fault}): download or make the file again")
    with torch.no_grad():
        for name, tensor in module_tensors.items():
            tensor.copy_(weights.get(name_of(name)))
