"""Settings of tuning a vision-language model: one base recipe, and what each engine changes."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from cxr.base.errors import UserError
from cxr.base.settings import AUTHORS, PAPER, Check, Limits, Section, Share, constraint, key
from cxr.nets.microbatch import fit_micro_batch

Family = Literal["qwen25vl", "qwen3vl", "gemma3", "onevision"]
Part = Literal["vision", "projector", "language"]
Rates = dict[Part, Annotated[float, Limits(gt=0, le=1)]]


def _without_marks(text: str) -> str:
    if mark := re.search(r"<[^<>\n]+>", text):
        raise ValueError(
            f"it is {text!r}, which holds {mark[0]!r}, and a model may take that for a mark of its own: leave it out"
        )
    return text


SystemPrompt = Annotated[str, Check(_without_marks)]
SYSTEM_PROMPT = "System prompt in tuning and asking; empty: the authors', `You are a helpful assistant`."


def _tiles(text: str) -> str:
    if not re.fullmatch(r"anyres_max_[1-9]\d{0,3}", text):
        raise ValueError(f"it is {text!r}: give anyres_max_ and the greatest number of tiles, such as anyres_max_9")
    return text


Tiles = Annotated[str, Check(_tiles)]
MOST_TILES = "Maximum number of tiles of an image; the features of a larger one are shrunk to it."
BETAS = (0.9, 0.999)
"""Decay rates of AdamW's two moments (RadVLM's code)."""
SEG_LOSS = {"text": 1.0, "bce": 5.0, "dice": 1.0}
"""Weights of the losses of a run with a head: cross-entropy of all answers (ours), binary cross-entropy of the masks
and Dice loss of the non-empty masks (ROSALIA's).
"""


class VlmLora(Section):
    """Low-rank adapters."""

    rank: int = key(8, "Rank of the adapters; higher: more trained values.", source=PAPER, ge=1, le=1024)
    alpha: int = key(32, "Scale: the output is multiplied by alpha / rank.", source=PAPER, ge=1, le=8192)
    dropout: Share = key(0.05, "Dropout before the adapters.")
    target: Literal["language", "all"] = key(
        "language", "Linear layers with an adapter: of the language model, or of all parts (the paper's `all linear`)."
    )


class Recipe(Section):
    """How a model is tuned; the values of MedGround's paper."""

    method: Literal["lora", "full"] = key("lora", "lora: train adapters; full: train whole parts.", source=PAPER)
    lora: VlmLora = key(VlmLora, "Adapters.", source=PAPER)
    parts: list[Part] = key(lambda: ["vision", "projector", "language"], "Parts that `full` trains.", min_length=1)
    rates: Rates = key(dict, "Learning rates of parts, in place of `learning_rate`.")
    epochs: int = key(3, "Passes over the samples.", source=PAPER, ge=1, le=100_000)
    updates: int = key(0, "Total optimizer steps; 0 uses `epochs`.", ge=0, le=10_000_000)
    batch: int = key(64, "Samples per step, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(
        4, "Samples per forward pass on one GPU; fewer if compute.gpus divides a batch into smaller parts.",
        unit="samples", source=PAPER, ge=1, le=4096,
    )  # fmt: skip
    learning_rate: float = key(2e-4, "Highest learning rate.", source=PAPER, gt=0, le=1)
    schedule: Literal["cosine", "linear", "constant"] = key("cosine", "How it falls to 0.", source=PAPER)
    warmup_ratio: Share = key(0.1, "Fraction of the steps in which it rises.", source=PAPER)
    weight_decay: float = key(0.0, "Weight decay of AdamW.", ge=0, le=1)
    clip: float = key(1.0, "Maximum gradient norm.", gt=0, le=1e6)
    drop_last: bool = key(False, "Drop an epoch's incomplete batch, unless it is the only one (RadVLM's code).")
    loss_on: Literal["answers", "published"] = key(
        "answers",
        "Tokens in the loss. answers: those of the answers and their end tokens (the paper); published: also turn "
        "marks and line breaks anywhere, and the role's name before answers (RadVLM's code).",
        source=PAPER,
    )
    max_length: int = key(
        2048, "Maximum tokens of a sample with its image; longer ones are excluded and listed.", unit="tokens",
        source=PAPER, ge=16, le=1_000_000,
    )  # fmt: skip
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the model.", source=PAPER)
    gradient_checkpointing: bool = key(True, "Recompute activations to save memory.", source=PAPER)
    runner: Literal["plain", "deepspeed"] = key(
        "deepspeed", "deepspeed: one process per GPU of compute.gpus; plain: one process."
    )
    zero: Literal[2, 3] = key(
        2, "What DeepSpeed divides among the GPUs. 2: gradients and AdamW's moments; 3: the weights too."
    )
    names: Literal["published", "library"] = key(
        "published",
        "Tensor names in a whole model's files, which differ for LLaVA-OneVision only. published: of the authors' "
        "checkpoints, which vLLM and others read; library: as transformers writes them.",
    )

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


class TinyRecipe(Recipe):
    """The engine tiny: a small random model of a family's real classes, on a CPU. It shows that the path learns."""

    family: Family = key("qwen25vl", "Architecture of the model.")
    side: int = key(112, "Maximum side of its images.", unit="px", ge=56, le=1024)
    method: Literal["lora", "full"] = key("full", "Adapters alone do not learn on random weights.")
    updates: int = key(300, "Total optimizer steps; 0 uses `epochs`.", ge=0, le=10_000_000)
    batch: int = key(16, "Samples per step.", unit="samples", ge=1, le=65_536)
    micro_batch: int = key(16, "Samples per forward pass.", unit="samples", ge=1, le=4096)
    learning_rate: float = key(4e-3, "Highest learning rate.", gt=0, le=1)
    dtype: Literal["bfloat16", "float32"] = key("float32", "Number type of the model.")
    gradient_checkpointing: bool = key(False, "Recompute activations to save memory.")
    runner: Literal["plain", "deepspeed"] = key("plain", "As of the other engines.")


class OnevisionTinySizes(Section):
    """Sizes of the small LLaVA-OneVision; a layer's feed-forward part is twice as wide."""

    patch: int = key(16, "Side of a patch; a tile has half of `side`.", unit="px", ge=4, le=64)
    hidden: int = key(96, "Width of the language model.", unit="values", ge=16, le=4096)
    layers: int = key(3, "Layers of the language model.", unit="layers", ge=1, le=64)
    vision_hidden: int = key(64, "Width of the vision tower.", unit="values", ge=16, le=4096)
    vision_layers: int = key(2, "Layers of the vision tower.", unit="layers", ge=1, le=64)
    head_size: int = key(
        32, "Width of an attention head in both; vLLM accepts no less than 32 on a CPU.", unit="values", ge=2, le=256,
        multiple_of=2,
    )  # fmt: skip

    @constraint
    def _has_whole_heads(self) -> None:
        for name in ("hidden", "vision_hidden"):
            value = getattr(self, name)
            if value % self.head_size:
                raise ValueError(
                    f"{name} is {value}, which is no multiple of head_size, {self.head_size}: set {name} to "
                    f"{-(-value // self.head_size) * self.head_size}, or head_size to a divisor"
                )


class OnevisionTinyRecipe(TinyRecipe):
    """The engine onevision_tiny: LLaVA-OneVision's real classes with half a million values, on a CPU."""

    family: Family = key("onevision", "Architecture of the model.")
    side: int = key(
        128, "Maximum side of its images; must equal the base's unless init is random.", unit="px", ge=56, le=1024
    )
    sizes: OnevisionTinySizes = key(
        OnevisionTinySizes, "Its sizes, also of the engine tiny if its family is onevision; must equal the base's "
        "unless init is random.",
    )  # fmt: skip
    init: Literal["base", "random"] = key(
        "base",
        "base: start from the weights in resources/vlm/onevision_tiny, trained on a synthetic cohort; random: start "
        "from random weights, with any side and sizes.",
    )
    rates: Rates = key(lambda: {"vision": 8e-5}, "Learning rates of parts, in place of `learning_rate`.")
    updates: int = key(1000, "Total optimizer steps; 0 uses `epochs`.", ge=0, le=10_000_000)
    learning_rate: float = key(4e-4, "Highest learning rate; without the base use five times as much.", gt=0, le=1)
    warmup_ratio: Share = key(0.03, "Fraction of the steps in which it rises.", source=PAPER)
    max_new_tokens: int = key(300, "Maximum length of an answer.", unit="tokens", ge=1, le=100_000)
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(2, "Maximum tiles per side; a tile has half of `side`.", unit="tiles", ge=1, le=32)
    system_prompt: SystemPrompt = key("", SYSTEM_PROMPT)
    seg_start: Literal["base", "lite", "sam"] = key(
        "base",
        "Initial head. base: trained with the base's language model; lite: the SAM of ROSALIA lite's base; sam: SAM as "
        "published.",
    )
    seg_learning_rate: float = key(
        5e-4, "Highest learning rate of the head; without the base use four times as much.", gt=0, le=1
    )

    @constraint
    def _has_tiles(self) -> None:
        for name in ("tiles", "grid"):
            value = getattr(self, name)
            if self.family != "onevision" and value != getattr(type(self), name):
                raise ValueError(
                    f"{name} is {value}, but family is {self.family!r}, which cuts no picture into tiles: leave {name} "
                    "out, or set family to onevision"
                )

    @constraint
    def _has_sizes(self) -> None:
        if self.family != "onevision":
            for name, value, default in self._sizes():
                if value != default:
                    raise ValueError(
                        f"{name} is {value}, but family is {self.family!r}, whose small model has sizes of its own: "
                        "leave sizes out, or set family to onevision"
                    )
        elif self.side < 4 * self.sizes.patch:
            raise ValueError(
                f"side is {self.side} and sizes.patch {self.sizes.patch}, but a tile has half of side and needs two "
                f"patches: set side to {4 * self.sizes.patch} or more, or sizes.patch to {self.side // 4} or less"
            )

    def _sizes(self) -> Iterator[tuple[str, int, int]]:
        """Yield (key, value, default) of all sizes."""
        defaults = type(self.sizes)().as_dict()
        for name, value in self.sizes.as_dict().items():
            yield f"sizes.{name}", value, defaults[name]

    @constraint
    def _has_a_base(self) -> None:
        if self.init == "base":
            self.check_base()

    def check_base(self) -> None:
        """Raise ValueError for a model that the base does not fit."""
        recipe_fields = [(name, getattr(self, name), getattr(type(self), name)) for name in ("side", "family")]
        for name, value, default in [*recipe_fields, *self._sizes()]:
            if value != default:
                raise ValueError(
                    f"{name} is {value}, but the base in resources/vlm/onevision_tiny has {default}: leave it so, or "
                    "set init to random"
                )


class Qwen3Recipe(Recipe):
    """Qwen3-VL, as the paper tuned the 8B model."""

    batch: int = key(256, "Samples per step, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(32, "Samples per forward pass on one GPU.", unit="samples", source=PAPER, ge=1, le=4096)


class Gemma3Recipe(Recipe):
    """Gemma 3, as the paper tuned MedGemma 4B; its 27B has a batch of 64, 8 on a GPU."""

    batch: int = key(128, "Samples per step, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(16, "Samples per forward pass on one GPU.", unit="samples", source=PAPER, ge=1, le=4096)


class OnevisionLora(VlmLora):
    """Low-rank adapters for LLaVA-OneVision, which RadVLM's authors did not use."""

    rank: int = key(128, "Rank of the adapters; higher: more trained values.", ge=1, le=1024)
    alpha: int = key(256, "Scale: the output is multiplied by alpha / rank.", ge=1, le=8192)


class OnevisionRecipe(Recipe):
    """LLaVA-OneVision, as RadVLM's paper tuned the 7B model: all parts, once over the samples."""

    model: str = key(
        "llava-hf/llava-onevision-qwen2-7b-si-hf",
        "Folder or Hugging Face id of the base model of runs that name none.",
        source=PAPER, min_length=1,
    )  # fmt: skip
    method: Literal["lora", "full"] = key("full", "lora: train adapters; full: train whole parts.", source=PAPER)
    lora: OnevisionLora = key(OnevisionLora, "Adapters.")
    rates: Rates = key(lambda: {"vision": 2e-6}, "Learning rates of parts, in place of `learning_rate`.", source=PAPER)
    epochs: int = key(1, "Passes over the samples.", source=PAPER, ge=1, le=100_000)
    batch: int = key(256, "Samples per step, over all GPUs.", unit="samples", source=AUTHORS, ge=1, le=65_536)
    micro_batch: int = key(1, "Samples per forward pass on one GPU.", unit="samples", source=AUTHORS, ge=1, le=4096)
    learning_rate: float = key(1e-5, "Highest learning rate.", source=PAPER, gt=0, le=1)
    warmup_ratio: Share = key(0.03, "Fraction of the steps in which it rises.", source=AUTHORS)
    zero: Literal[2, 3] = key(
        3, "What DeepSpeed divides among the GPUs. 2: gradients and AdamW's moments; 3: the weights too.",
        source=AUTHORS,
    )  # fmt: skip
    max_length: int = key(
        8192, "Maximum tokens of a sample; an image of 512 × 512 px has 3,699, of 1024 × 1024 px 7,371.",
        unit="tokens", ge=16, le=1_000_000,
    )  # fmt: skip
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(
        6, "Maximum tiles per side; the side of a tile is the model's (384 px).", unit="tiles", source=AUTHORS, ge=1,
        le=32,
    )  # fmt: skip
    max_new_tokens: int = key(1500, "Maximum length of an answer.", unit="tokens", source=AUTHORS, ge=1, le=100_000)
    system_prompt: SystemPrompt = key("", SYSTEM_PROMPT)
    seg_start: Literal["lite", "sam"] = key(
        "sam", "Initial head. sam: ViT-H as published; lite: the SAM of ROSALIA lite's base."
    )
    seg_learning_rate: float = key(3e-4, "Highest learning rate of the head; ROSALIA's.", gt=0, le=1)
