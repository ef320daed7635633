"""Select the trained parts of the model: LoRA adapters on the language model, and fully trained parts."""

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraModel
from torch import nn

from cxr.ils.rosalia.model import Rosalia
from cxr.ils.training.settings import LoraSettings, Recipe

LANGUAGE_MODEL, HEAD = "model.language_model", "lm_head"
PARTS = {
    "language_model": f"llava.{LANGUAGE_MODEL}.",
    "lm_head": f"llava.{HEAD}.",
    "embed_tokens": f"llava.{LANGUAGE_MODEL}.embed_tokens.",
    "multi_modal_projector": "llava.model.multi_modal_projector.",
    "vision_tower": "llava.model.vision_tower.",
    "project": "project.",
    "mask_decoder": "sam.mask_decoder.",
    "prompt_encoder": "sam.prompt_encoder.",
    "vision_encoder": "sam.vision_encoder.",
}
"""Values of ``training.<engine>.trained`` -> prefix of their tensors' names."""
ADAPTER = "lora_"
"""Part of the names that peft gives an adapter's tensors."""


def add_adapters(model: Rosalia, options: LoraSettings) -> LoraModel | None:
    """Insert adapters into all linear layers of the language model and its head, in place.

    Untrained, they change no output (B = 0).
    """
    if not options.rank:
        return None
    layers = [
        name
        for name, module in model.llava.named_modules()
        if isinstance(module, nn.Linear) and (name.startswith(f"{LANGUAGE_MODEL}.") or name == HEAD)
    ]
    config = LoraConfig(r=options.rank, lora_alpha=options.alpha, lora_dropout=options.dropout, target_modules=layers)
    return LoraModel(model.llava, config, "default")


def merge_adapters(model: Rosalia, adapters: LoraModel | None) -> None:
    """Merge the adapters into the adapted weights, in place."""
    if adapters is not None:
        model.llava = adapters.merge_and_unload(safe_merge=True)


def select_trained(model: Rosalia, trained: list[str]) -> dict[str, nn.Parameter]:
    """Freeze all but the adapters and the named parts; return the trained parameters by name.

    A layer may have an adapter and also be trained in full (lm_head in the published code).
    """
    prefixes = tuple(PARTS[name] for name in trained)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(ADAPTER in name or name.startswith(prefixes))
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimiser(parameters: dict[str, nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW over the trained parameters; the schedule sets its learning rate."""
    return torch.optim.AdamW(parameters.values(), lr=0.0, betas=recipe.betas, weight_decay=recipe.weight_decay)
