"""The interface of a family of models: what differs between architectures in chat, pictures and names of parts.

A family is a module of this package with ``MODEL_TYPE`` (of its configuration), ``CONVENTION``, ``FRAME``, the
functions ``load(folder)`` and ``tiny``, and, where the library starts a part at zero, ``begin(model)``, which draws it.
``published(name)`` gives the makers' name of a tensor in a file, where the library writes another;
``processor_config(config)`` what that file holds, where a program needs it. ``VLLM = False`` says that the engine vllm
cannot ask it, ``GOES_ON = True`` that a later turn needs no more of the earlier ones than their keys and values. A
family may have ``idle``: prefixes of tensors that no answer depends on, which are never trained.
``cuts(folder, tiles, grid)`` says whether a model cuts pictures into tiles so, and ``recut`` makes it; ``VLLM_TILES``
is the only ``tiles`` that vLLM knows, ``VLLM_ADAPTERS = False`` says that it asks no adapter.
``SIZES`` names the sizes of ``tiny`` that settings give, where they do.
``SYSTEM`` is its makers' system prompt, as it stands in ``FRAME.start``, where a setting may replace it.
A further family is a further file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from transformers import AutoConfig, PretrainedConfig

from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.vlm.conventions import Seen

PARTS = ("vision", "projector", "language")
"""Parts of a model, which may be frozen or have learning rates of their own."""


@dataclass(frozen=True)
class Frame:
    """The family's chat in pieces. A conversation is start, then for each turn user, (the picture, in the first turn),
    the question, assistant, the answer, end, between.

    picture: the token that is repeated for a picture, between opening and closing; system: the system prompt, as it
    stands in start, "" for none that can be replaced.
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
        """Tokens that no question or answer may hold: it would be taken for the frame."""
        return tuple(sorted({mark.strip() for mark in (self.opening, self.picture, self.closing, self.end)} - {""}))

    def with_system(self, prompt: str) -> "Frame":
        """Return the frame with another system prompt; "" leaves its makers'. Raises ValueError if it has none."""
        if not prompt:
            return self
        before, _, after = self.start.partition(self.system)
        return replace(self, start=f"{before}{prompt}{after}", system=prompt)


@dataclass(frozen=True)
class Pictures:
    """Encoded pictures. tensors: the model's inputs, first axis patches or pictures; tokens: of each picture; seen:
    its size as the model sees it; rows: of each picture in ``tensors``.
    """

    tensors: Mapping[str, torch.Tensor]
    tokens: tuple[int, ...]
    seen: tuple[Seen, ...]

    @classmethod
    def joined(cls, parts: Sequence["Pictures"]) -> "Pictures":
        """Return several as one, in order."""
        names = parts[0].tensors
        tensors = {name: torch.cat([part.tensors[name] for part in parts]) for name in names}
        return cls(tensors, sum((part.tokens for part in parts), ()), sum((part.seen for part in parts), ()))


class Family(Protocol):
    """What is known of a family, for one model of it."""

    frame: Frame
    convention: str
    """The convention of coordinates that its makers state."""
    prefixes: Mapping[str, tuple[str, ...]]
    """{part of PARTS: prefixes of its tensors' names}; the longest prefix decides."""

    def pictures(self, pictures: Sequence[np.ndarray]) -> Pictures:
        """Encode pictures, uint8 (H, W, 3) of any sizes."""
        ...

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return what the model needs beside ids (N, L), mask and pictures: such as which tokens are a picture's."""
        ...


class Tiny(Protocol):
    """The other function of a family's module: a configuration of a few hundred thousand values, for tests and the
    engine tiny. ``tiny(vocabulary, ids, side)`` returns (configuration, picture processor); ids: {token name: id}.
    """

    def __call__(self, vocabulary: int, ids: Mapping[str, int], side: int) -> tuple[PretrainedConfig, object]: ...


def part_of(family: Family, name: str) -> str:
    """Return the part that a tensor belongs to, by its name; "" for none."""
    matches = [
        (len(prefix), part) for part, prefixes in family.prefixes.items() for prefix in prefixes if prefix in name
    ]
    return max(matches)[1] if matches else ""


def load_family(name: str, folder: str | Path) -> Family:
    """Return the family ``name`` for the model in ``folder``.

    Raises UserError for an unknown family, or a folder that holds no model of it.
    """
    module = engine_module("cxr.vlm.families", name)
    try:
        kind = AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    except (OSError, ValueError) as error:
        refuse_machine_fault(folder, error)
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} holds no model ({first[:160]}): give the folder of a {name} model") from None
    if kind != module.MODEL_TYPE:
        raise UserError(
            f"{folder} holds a model of type {kind}, not {module.MODEL_TYPE}: change the engine or the model"
        )
    return module.load(Path(folder))
