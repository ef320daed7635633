"""Models in folders: reading them whole, making tiny random ones, adapters."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from cxr.base.engines import engine_module
from cxr.base.errors import UserError
from cxr.vlm.families.engine import Family, load_family
from cxr.vlm.tokens import VIDEO, Tokens, marks_of, small_tokenizer

ADAPTER = "adapter_config.json"
"""A file of peft's layout: a folder with it holds an adapter, not a model."""


@dataclass(frozen=True)
class Loaded:
    """A model with its family and tokens."""

    model: nn.Module
    family: Family
    tokens: Tokens


def load_model(name: str, folder: str | Path, dtype: torch.dtype = torch.float32) -> Loaded:
    """Return the model of the family ``name`` in a folder, in evaluation mode.

    Raises UserError for a folder of another family, or one that lacks a tensor: a missing one would be random.
    """
    family = load_family(name, folder)
    tokens = Tokens.read(folder, family.frame)
    try:
        model, told = AutoModelForImageTextToText.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} holds no model that can be read ({first[:160]}): fetch it again") from None
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := told.get(fault):
            one = sorted(map(str, names))[0]
            raise UserError(f"{folder}: {fault.replace('_', ' ')}, such as {one}: it is no whole {name} model")
    return Loaded(model.eval(), family, tokens)


def make_tiny(name: str, folder: str | Path, texts: Iterable[str], side: int, seed: int) -> None:
    """Write a small random model of a family's real classes into a folder, with a tokenizer made of ``texts``."""
    module = engine_module("cxr.vlm.families", name)
    frame = module.FRAME
    tokenizer = small_tokenizer(texts, frame)
    known = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in [*marks_of(frame), VIDEO]}
    marks = {role: known[getattr(frame, role).strip()] for role in ("opening", "picture", "closing", "end")}
    ids = marks | {"pad": tokenizer.pad_token_id, "video": known[VIDEO], "start": known[marks_of(frame)[0]]}
    config, processor = module.tiny(len(tokenizer), ids, side)
    before = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    getattr(module, "begin", lambda made: None)(model)
    torch.random.set_rng_state(before)
    model.generation_config.eos_token_id = ids["end"]
    model.generation_config.pad_token_id = ids["pad"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
