"""The recipe of a tuning: optimizer, schedule, and what is trained: adapters, or whole parts with learning rates."""

import math
from dataclasses import dataclass, replace

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from cxr.base.errors import UserError
from cxr.nets.microbatch import fit_micro_batch
from cxr.segmentation.segmenter import TRAINED_PREFIXES
from cxr.vlm.families.engine import PARTS, Family, part_of

ADAPTER = ("lora_", "trainable_tokens_")
"""peft's names of adapter tensors: of layers, and of rows of tokens."""
LANGUAGE, ALL = "language", "all"
EMBEDDING, HEAD = "embed_tokens", "lm_head"
"""Names of the layers with one row per token."""
SEGMENTER = "segmenter."
"""Prefix of a segmenter's tensors; without the dot, the name of its learning rate."""


@dataclass(frozen=True)
class Recipe:
    """Settings of one run, ``vlm.tuning.<engine>``.

    method: lora or full; lora: {rank, alpha, dropout, target}; parts: trained in full; rates: {part: learning rate}
    that replace ``learning_rate``; updates: total optimizer steps, 0 uses ``epochs``; zero: stage of DeepSpeed's ZeRO;
    names: tensor names of a whole model; drop_last: drop an epoch's incomplete batch; loss_on: answers, or published
    (also turn marks, line breaks and the opening of answers).
    """

    method: str
    lora: dict
    parts: list[str]
    rates: dict[str, float]
    epochs: int
    updates: int
    batch: int
    micro_batch: int
    learning_rate: float
    schedule: str
    warmup_ratio: float
    weight_decay: float
    betas: list[float]
    clip: float
    max_length: int
    dtype: str
    gradient_checkpointing: bool
    runner: str
    zero: int = 2
    names: str = "published"
    drop_last: bool = False
    loss_on: str = "answers"

    def shared(self, ranks: int) -> "Recipe":
        """Return the recipe with the largest micro-batch that divides the batch among ``ranks`` processes."""
        size = fit_micro_batch(self.batch, self.micro_batch, ranks, False)
        return replace(self, micro_batch=size or self.micro_batch)  # if no size fits, `micro_batches_per_step` raises

    def micro_batches_per_step(self, ranks: int) -> int:
        """Return the micro-batches per step and rank. Raises UserError if the batch is not divisible."""
        count, remainder = divmod(self.batch, self.micro_batch * ranks)
        if remainder or not count:
            raise UserError(
                f"vlm.tuning: batch is {self.batch}, no multiple of micro_batch {self.micro_batch} times the {ranks} "
                "GPUs at work: change batch, micro_batch or compute.gpus"
            )
        return count

    def rate(self, update: int, total: int) -> float:
        """Return the learning-rate factor of a step (from 0): linear warm-up, then the schedule."""
        warmup = math.ceil(self.warmup_ratio * total)
        if update < warmup:
            return (update + 1) / warmup
        done = (update - warmup) / max(1, total - warmup)
        falling = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}
        return falling[self.schedule]


def adapter_layers(model: nn.Module, family: Family, target: str) -> list[str]:
    """Return the names of the linear layers that get an adapter: of the language model, or of all parts.

    The head gets none, because it may share its weights with the embedding.
    """
    parts = (LANGUAGE,) if target == LANGUAGE else PARTS
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and part_of(family, f"{name}.") in parts and not name.endswith(HEAD)
    ]


def add_adapters(model: nn.Module, family: Family, lora: dict, token: int | None = None) -> PeftModel:
    """Return the model with adapters, which have no effect before training (B = 0).

    ``token``: a new token whose rows of embedding and head are trained too.
    """
    names = adapter_layers(model, family, lora["target"])
    config = LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], target_modules=names)
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
    return torch.optim.AdamW(param_groups, lr=0.0, betas=tuple(recipe.betas), weight_decay=recipe.weight_decay)
