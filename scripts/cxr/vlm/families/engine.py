"""The interface of a model family, a module of this package with the code for one architecture.

The module must define ``MODEL_TYPE`` (the type in a model's configuration), ``CONVENTION`` (how the authors write
boxes), ``TEMPLATE`` (the chat), ``load(folder)`` and ``tiny(vocabulary, ids, side)``. ``tiny`` returns a small
configuration and a processor of images up to ``side`` px. ``vocabulary`` is the number of tokens, and
``ids`` are {token name: id}. The module may define:

* ``init_weights(model)``, which initialises a part that the library leaves zero;
* ``published_name(name)``, which returns a tensor's name in the published checkpoints from its name in the library;
* ``processor_config(config)``, which returns the content of processor_config.json, if a program needs this file;
* ``VLLM = False`` or ``VLLM_ADAPTERS = False`` if vLLM does not support the family or its adapters, and
  ``VLLM_TILES``, the only ``tiles`` that vLLM supports;
* ``REUSES_KV_CACHE = True`` if a later turn needs only the keys and values of earlier turns;
* ``has_tiling(folder, tiles, grid)`` and ``write_tiling``, which check and change how a model cuts images into tiles.

The family object may have ``idle``, prefixes of tensors that no answer depends on. These tensors are never trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from transformers import AutoConfig

from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_unreadable
from cxr.vlm.conventions import InputSize

FAMILIES = "cxr.vlm.families"  # package of the families
PARTS = ("vision", "projector", "language")  # parts of a model, which can be frozen or have separate learning rates


@dataclass(frozen=True)
class ChatTemplate:
    """A family's chat template in pieces. A conversation begins with ``start``, and each turn begins with ``user``.

    Then follow the question, ``assistant``, the answer and ``end``, and ``between`` before the next turn. In the first
    turn, ``opening``, image tokens and ``closing`` stand before the question. ``picture`` is the token that is repeated
    for an image. ``system`` is the replaceable system prompt inside ``start``, "" for none.
    """

    start: str
    user: str
    opening: str
    picture: str
    closing: str
    assistant: str
    end: str
    between: str
    system: str = ""

    @property
    def reserved(self) -> tuple[str, ...]:
        """Tokens that no question or answer may contain, because they would be read as part of the template."""
        return tuple(sorted({mark.strip() for mark in (self.opening, self.picture, self.closing, self.end)} - {""}))

    def with_system(self, prompt: str) -> "ChatTemplate":
        """Return the template with the system prompt ``prompt``. Raises ValueError if it has no system prompt."""
        if not prompt:
            return self
        before, _, after = self.start.partition(self.system)
        return replace(self, start=f"{before}{prompt}{after}", system=prompt)


@dataclass(frozen=True)
class EncodedImages:
    """Encoded images. ``tensors`` are model inputs, whose first axis is patches or images.

    ``tokens`` and ``sizes`` have one entry per image: its number of tokens, and its size as the model sees it.
    """

    tensors: Mapping[str, torch.Tensor]
    tokens: tuple[int, ...]
    sizes: tuple[InputSize, ...]

    @classmethod
    def concatenate(cls, parts: Sequence["EncodedImages"]) -> "EncodedImages":
        names = parts[0].tensors
        tensors = {name: torch.cat([part.tensors[name] for part in parts]) for name in names}
        return cls(tensors, sum((part.tokens for part in parts), ()), sum((part.sizes for part in parts), ()))


class Family(Protocol):
    """The interface of the object that a family's ``load`` returns for one model."""

    frame: ChatTemplate
    prefixes: Mapping[str, tuple[str, ...]]
    """{part of PARTS: prefixes of its tensors' names}. If several prefixes match a tensor, the longest decides."""

    def pictures(self, pictures: Sequence[np.ndarray]) -> EncodedImages:
        """Encode images, uint8 (H, W, 3), of any sizes."""
        ...

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return further inputs from token ids (N, L), such as a mask of image tokens, whose id is ``picture_id``."""
        ...


def part_of(family: Family, name: str) -> str:
    """Return the part of the model to which the tensor ``name`` belongs, or "" for no part."""
    prefixes = [(len(prefix), part) for part, each in family.prefixes.items() for prefix in each if prefix in name]
    return max(prefixes, default=(0, ""))[1]


def load_family(name: str, folder: str | Path) -> Family:
    """Return the family object for the model in ``folder``. Raises UserError if it is not of the family ``name``."""
    module = engine_module(FAMILIES, name)
    with refuse_unreadable(folder, f"{folder} holds no model", f"give the folder of a {name} model"):
        kind = AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    if kind != (model_type := module.MODEL_TYPE):
        raise UserError(f"{folder} holds a model of type {kind}, not {model_type}: change the engine or the model")
    return module.load(Path(folder))
