"""State dicts that were published as pickles: read without running what is in them, written as safetensors."""

import pickle
from pathlib import Path

import torch
from safetensors.torch import save

from ils.core.faults import no_inputs
from ils.core.run import UserError

WRAPPERS = ("model", "state_dict", "model_state_dict")
"""Keys under which training code keeps the state dict."""


def read(source: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint: a state dict, alone or under one of ``WRAPPERS``.

    Raises UserError with one sentence for a file that is damaged, holds more than tensors, or holds none.
    """
    try:
        held = torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{source} is damaged or holds more than tensors, and is not read for safety: download it again "
            "(docs/models.md)"
        ) from None
    # a damaged pickle makes torch raise whatever comes: IndexError, AssertionError, struct.error, …
    except Exception as error:
        if no_inputs(error):
            raise
        raise UserError(f"{source} is damaged or cut short: download it again (docs/models.md)") from None
    for key in WRAPPERS:
        if isinstance(held, dict) and isinstance(held.get(key), dict):
            held = held[key]
    if not isinstance(held, dict) or not held or not all(map(_is_plain, held.values())):
        raise UserError(f"{source} holds no state dict: it is not the file that docs/models.md names")
    tensors = {str(name).removeprefix("module."): value for name, value in held.items()}
    if len(tensors) < len(held):
        raise UserError(f"{source} holds a tensor with and without the prefix module.: it is not the published file")
    return tensors


def _is_plain(value: object) -> bool:
    """Whether a value is a tensor that safetensors can hold: whole, of plain numbers."""
    if not isinstance(value, torch.Tensor) or value.is_meta or value.is_quantized or value.is_complex():
        return False
    return value.layout == torch.strided


def convert(source: Path, target: Path) -> dict:
    """Write the state dict of ``source`` as the safetensors file ``target``; return how much it holds."""
    tensors = read(source)
    # each tensor on its own: safetensors refuses two names for one memory, as tied weights have
    plain = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    Path(target).write_bytes(save(plain))  # not save_file, which makes files that nobody else may read
    return {"tensors": len(tensors), "values": sum(value.numel() for value in tensors.values())}
