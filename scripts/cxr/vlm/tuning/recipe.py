"""What a tuning trains: adapters, or whole parts with learning rates of their own; and its optimizer."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from cxr.base.errors import UserError
from cxr.segmentation.segmenter import TRAINED_PREFIXES
from cxr.vlm.families.engine import PARTS, Family, part_of
from cxr.vlm.tuning.settings import Recipe, VlmLora

BETAS = (0.9, 0.999)
"""Decay rates of AdamW's two moments (RadVLM's code)."""
ADAPTER = ("lora_", "trainable_tokens_")
"""peft's names of adapter tensors: of layers, and of rows of tokens."""
LANGUAGE, ALL = "language", "all"
EMBEDDING, HEAD = "embed_tokens", "lm_head"
"""Names of the layers with one row per token."""
SEGMENTER = "segmenter."
"""Prefix of a segmenter's tensors; without the dot, the name of its learning rate."""


def add_adapters(model: nn.Module, family: Family, lora: VlmLora, token: int | None = None) -> PeftModel:
    """Return the model with adapters, which have no effect before training (B = 0).

    ``token``: a new token whose rows of embedding and head are trained too.
    """
    parts = (LANGUAGE,) if lora.target == LANGUAGE else PARTS
    names = [  # not the head, because it may share its weights with the embedding
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and part_of(family, f"{name}.") in parts and not name.endswith(HEAD)
    ]
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=names)
    if token is not None:
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        config.trainable_token_indices = {name: [token] for name in (EMBEDDING, *([] if tied else [HEAD]))}
    return get_peft_model(model, config)


def select_trained(model: nn.Module, family: Family, recipe: Recipe) -> dict[str, nn.Parameter]:
    """Freeze everything except adapters or the recipe's parts; return {name: parameter} of the trained ones."""
    for name, parameter in model.named_parameters():
        idle = any(prefix in name for prefix in getattr(family, "idle", ()))  # has no gradient
        full = recipe.method == "full" and part_of(family, name) in recipe.parts and not idle
        if name.startswith(SEGMENTER):
            full = name.removeprefix(SEGMENTER).startswith(TRAINED_PREFIXES)
        parameter.requires_grad_(full or any(mark in name for mark in ADAPTER))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not trained:
        raise UserError("vlm.tuning: no part of the model is trained: name vision, projector or language in parts")
    return trained


def make_optimizer(parameters: dict[str, nn.Parameter], family: Family, recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW with one group per part; ``scale`` of a group is its learning rate over the recipe's."""
    groups: dict[str, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        part = SEGMENTER[:-1] if name.startswith(SEGMENTER) else part_of(family, name)
        groups.setdefault(part, []).append(parameter)
    rates = {part: recipe.rates.get(part, recipe.learning_rate) for part in groups}
    param_groups = [
        {"params": tensors, "scale": rates[part] / recipe.learning_rate, "part": part}
        for part, tensors in groups.items()
    ]
    return torch.optim.AdamW(param_groups, lr=0.0, betas=BETAS, weight_decay=0.0)
