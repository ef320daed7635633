"""The interface of a model family: what differs between architectures in chat, images and names of parts.

A family is a module of this package. Required: ``MODEL_TYPE`` (of its configuration), ``CONVENTION``, ``TEMPLATE``,
``load(folder)`` and ``tiny(vocabulary, ids, side)``, which returns a configuration of a few hundred thousand parameters
and an image processor (ids: {token name: id}). Optional:

* ``init_weights(model)``: initialises a part that the library leaves zero;
* ``published_name(name)``: a tensor's name in the published checkpoints, if it differs from the library's;
* ``processor_config(config)``: the content of processor_config.json, if a program needs it;
* ``VLLM = False``: the engine vllm does not support it; ``VLLM_ADAPTERS = False``: nor its adapters; ``VLLM_TILES``:
  the only ``tiles`` that vLLM supports;
* ``REUSES_KV_CACHE = True``: a later turn needs only the keys and values of the earlier ones;
* ``has_tiling(folder, tiles, grid)`` and ``write_tiling``: check and change how a model cuts images into tiles.

The family object may have ``idle``: prefixes of tensors that no answer depends on; they are never trained.
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
PARTS = ("vision", "projector", "language")  # parts of a model, which can be frozen or have their own learning rates


@dataclass(frozen=True)
class ChatTemplate:
    """A family's chat template in pieces. A conversation is start, then for each turn: user, (opening, picture tokens
    and closing, in the first turn), question, assistant, answer, end, between.

    picture: the token that is repeated for an image; system: the replaceable system prompt inside start, "" for none.
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
        """Return the template with another system prompt; "" keeps its own. Raises ValueError if it has none."""
        if not prompt:
            return self
        before, _, after = self.start.partition(self.system)
        return replace(self, start=f"{before}{prompt}{after}", system=prompt)


@dataclass(frozen=True)
class EncodedImages:
    """Encoded images. tensors: model inputs, whose first axis is patches or images; tokens: number of tokens of each
    image; sizes: size of each image as the model sees it.
    """

    tensors: Mapping[str, torch.Tensor]
    tokens: tuple[int, ...]
    sizes: tuple[InputSize, ...]

    @classmethod
    def concatenate(cls, parts: Sequence["EncodedImages"]) -> "EncodedImages":
        """Concatenate encoded images, in order."""
        names = parts[0].tensors
        tensors = {name: torch.cat([part.tensors[name] for part in parts]) for name in names}
        return cls(tensors, sum((part.tokens for part in parts), ()), sum((part.sizes for part in parts), ()))


class Family(Protocol):
    """The interface of a family's object for one model."""

    frame: ChatTemplate
    prefixes: Mapping[str, tuple[str, ...]]
    """{part of PARTS: prefixes of its tensors' names}; the longest prefix decides."""

    def pictures(self, pictures: Sequence[np.ndarray]) -> EncodedImages:
        """Encode images, uint8 (H, W, 3), of any sizes."""
        ...

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return further model inputs computed from ids (N, L), such as which tokens belong to an image."""
        ...


def part_of(family: Family, name: str) -> str:
    """Return the part of a tensor, by its name; "" for none."""
    prefixes = [(len(prefix), part) for part, each in family.prefixes.items() for prefix in each if prefix in name]
    return max(prefixes, default=(0, ""))[1]


def load_family(name: str, folder: str | Path) -> Family:
    """Return the family ``name`` for the model in ``folder``. Raises UserError if they do not match."""
    module = engine_module(FAMILIES, name)
    with refuse_unreadable(folder, f"{folder} holds no model", f"give the folder of a {name} model"):
        kind = AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    if kind != (model_type := module.MODEL_TYPE):
        raise UserError(f"{folder} holds a model of type {kind}, not {model_type}: change the engine or the model")
    return module.load(Path(folder))
