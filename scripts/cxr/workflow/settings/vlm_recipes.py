"""Settings of tuning a vision-language model: the recipe of each engine."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Check, Limits, Section, Share, constraint, key

Family = Literal["qwen25vl", "qwen3vl", "gemma3", "onevision"]
Part = Literal["vision", "projector", "language"]


def _plain(text: str) -> str:
    if mark := re.search(r"<[^<>\n]+>", text):
        raise ValueError(
            f"it is {text!r}, which holds {mark[0]!r}, and a model may take that for a mark of its own: leave it out"
        )
    return text


SystemPrompt = Annotated[str, Check(_plain)]
TOLD = "The chat's system prompt, in tuning and in asking; empty: its makers', `You are a helpful assistant`."


def _tiles(text: str) -> str:
    if not re.fullmatch(r"anyres_max_[1-9]\d{0,3}", text):
        raise ValueError(f"it is {text!r}: give anyres_max_ and the greatest number of tiles, such as anyres_max_9")
    return text


Tiles = Annotated[str, Check(_tiles)]
MOST_TILES = "Of how many tiles a picture has features at most; those of more are shrunk to as many."


class VlmLora(Section):
    """Low-rank adapters."""

    rank: int = key(8, "Rank.", source=PAPER, ge=1, le=1024)
    alpha: int = key(32, "Scale: the output is multiplied by alpha / rank.", source=PAPER, ge=1, le=8192)
    dropout: Share = key(0.05, "Dropout before the adapters.")
    target: Literal["language", "all"] = key(
        "language", "Linear layers with an adapter: of the language model, or of all parts (the paper's `all linear`)."
    )


class Recipe(Section):
    """How a model is tuned; the values of MedGround's paper."""

    method: Literal["lora", "full"] = key("lora", "Adapters, or parts in full.", source=PAPER)
    lora: VlmLora = key(VlmLora, "Adapters.", source=PAPER)
    parts: list[Part] = key(lambda: ["vision", "projector", "language"], "Parts that `full` trains.", min_length=1)
    rates: dict[Part, Annotated[float, Limits(gt=0, le=1)]] = key(
        dict, "Learning rate of a part, where it is another than `learning_rate`."
    )
    epochs: int = key(3, "Passes over the samples.", source=PAPER, ge=1, le=100_000)
    updates: int = key(0, "Updates in all, instead of epochs; 0: by epochs.", ge=0, le=10_000_000)
    batch: int = key(64, "Samples per update, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(
        4, "Samples per forward pass on one GPU; fewer if compute.gpus divides a batch into smaller parts.",
        unit="samples", source=PAPER, ge=1, le=4096,
    )  # fmt: skip
    learning_rate: float = key(2e-4, "Highest learning rate.", source=PAPER, gt=0, le=1)
    schedule: Literal["cosine", "linear", "constant"] = key("cosine", "How it falls to 0.", source=PAPER)
    warmup_ratio: Share = key(0.1, "Share of the updates in which it rises.", source=PAPER)
    weight_decay: float = key(0.0, "Weight decay of AdamW.", ge=0, le=1)
    betas: tuple[Share, Share] = key((0.9, 0.999), "Decay rates of AdamW's two moments.")
    clip: float = key(1.0, "Largest gradient norm.", gt=0, le=1e6)
    drop_last: bool = key(
        False, "Leave out an epoch's update of fewer samples than `batch`, unless it is the only one (RadVLM's code)."
    )
    loss_on: Literal["answers", "published"] = key(
        "answers",
        "Tokens that are learned. answers: those of the answers and their end tokens (the paper); published: the marks "
        "of turns and the line breaks too, of questions and system prompt as well, and the answering role's name, not "
        "the others' (RadVLM's code).",
        source=PAPER,
    )
    max_length: int = key(
        2048, "Tokens of a sample, its picture's counted; longer ones are left out and listed.", unit="tokens",
        source=PAPER, ge=16, le=1_000_000,
    )  # fmt: skip
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the model.", source=PAPER)
    gradient_checkpointing: bool = key(True, "Recompute activations to save memory.", source=PAPER)
    runner: Literal["plain", "deepspeed"] = key(
        "deepspeed", "deepspeed: one process a GPU of compute.gpus; plain: one process."
    )
    zero: Literal[2, 3] = key(
        2, "What DeepSpeed shares between the GPUs. 2: gradients and AdamW's moments; 3: the weights too."
    )
    names: Literal["published", "library"] = key(
        "published",
        "Tensors' names in a whole model's files. published: of the makers' checkpoints, which vLLM and others read; "
        "library: as transformers writes them. They differ for LLaVA-OneVision alone.",
    )


class TinyRecipe(Recipe):
    """The engine tiny: a small random model of a family's real classes, on a CPU. It shows that the path learns."""

    family: Family = key("qwen25vl", "Its architecture.")
    side: int = key(112, "Longest side of the pictures that it sees.", unit="px", ge=56, le=1024)
    method: Literal["lora", "full"] = key("full", "Adapters alone do not learn on random weights.")
    updates: int = key(300, "Updates in all; 0: by epochs.", ge=0, le=10_000_000)
    batch: int = key(16, "Samples per update.", unit="samples", ge=1, le=65_536)
    micro_batch: int = key(16, "Samples per forward pass.", unit="samples", ge=1, le=4096)
    learning_rate: float = key(4e-3, "Highest learning rate.", gt=0, le=1)
    dtype: Literal["bfloat16", "float32"] = key("float32", "Number type of the model.")
    gradient_checkpointing: bool = key(False, "Recompute activations to save memory.")
    runner: Literal["plain", "deepspeed"] = key("plain", "As of the other engines.")


class SegLoss(Section):
    """Weights of the losses of a run with a head of masks."""

    text: float = key(1.0, "Weight of the cross-entropy of the answers, over all samples.", ge=0, le=1000)
    bce: float = key(5.0, "Weight of the masks' binary cross-entropy; ROSALIA's.", ge=0, le=1000)
    dice: float = key(1.0, "Weight of the Dice loss of the masks that are not empty; ROSALIA's.", ge=0, le=1000)


class OnevisionTinySizes(Section):
    """Sizes of the small LLaVA-OneVision; a layer's feed-forward part is twice as wide."""

    patch: int = key(16, "Side of a patch; a tile has half of `side`.", unit="px", ge=4, le=64)
    hidden: int = key(96, "Width of the language model.", unit="values", ge=16, le=4096)
    layers: int = key(3, "Layers of the language model.", unit="layers", ge=1, le=64)
    vision_hidden: int = key(64, "Width of the vision tower.", unit="values", ge=16, le=4096)
    vision_layers: int = key(2, "Layers of the vision tower.", unit="layers", ge=1, le=64)
    head_size: int = key(
        32, "Width of an attention head, of both; vLLM's attention on a CPU refuses 16.", unit="values", ge=2, le=256,
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

    family: Family = key("onevision", "Its architecture.")
    side: int = key(
        128, "Longest side of the pictures that it sees; another than the base's needs init random.", unit="px", ge=56,
        le=1024,
    )  # fmt: skip
    sizes: OnevisionTinySizes = key(
        OnevisionTinySizes, "Its sizes, those of the engine tiny too where its family is onevision; others than the "
        "base's need init random.",
    )  # fmt: skip
    init: Literal["base", "random"] = key(
        "base",
        "base: the weights of resources/vlm/onevision_tiny, learnt from a synthetic cohort; random: nothing, which any "
        "side and sizes can start from.",
    )
    rates: dict[Part, Annotated[float, Limits(gt=0, le=1)]] = key(
        lambda: {"vision": 8e-5}, "Learning rate of a part, where it is another than `learning_rate`."
    )
    updates: int = key(1000, "Updates in all; 0: by epochs.", ge=0, le=10_000_000)
    learning_rate: float = key(4e-4, "Highest learning rate; without the base five times as much.", gt=0, le=1)
    warmup_ratio: Share = key(0.03, "Share of the updates in which it rises.", source=PAPER)
    max_length: int = key(
        2048,
        "Tokens of a sample, its picture's counted; longer ones are left out and listed. The longest of the mix of 300 "
        "embedded studies has 485; the model has 4,096 positions, which prompt and answer share, so that LLaVA-"
        "OneVision's 8,192 would promise more than it can read.",
        unit="tokens", ge=16, le=1_000_000,
    )  # fmt: skip
    max_new_tokens: int = key(300, "Longest answer that it is asked for.", unit="tokens", ge=1, le=100_000)
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(
        2,
        "Tiles a side at most; a tile has half of `side`, so that no picture fills more than 2.",
        unit="tiles", ge=1, le=32,
    )  # fmt: skip
    system_prompt: SystemPrompt = key("", TOLD)
    seg_loss: SegLoss = key(SegLoss, "Weights of the losses of a run with a head of masks.")
    seg_start: Literal["base", "lite", "sam"] = key(
        "base",
        "What the head starts from. base: the head that the base has learnt, with its language model; lite: the "
        "SAM of ROSALIA lite's base, in this repository; sam: SAM as published.",
    )
    seg_learning_rate: float = key(5e-4, "Highest learning rate of the head; not from the base four times.", gt=0, le=1)

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
        """Raise ValueError for a model that the base is not of."""
        recipe_fields = [(name, getattr(self, name), getattr(type(self), name)) for name in ("side", "family")]
        for name, value, default in [*recipe_fields, *self._sizes()]:
            if value != default:
                raise ValueError(
                    f"{name} is {value}, but the base in resources/vlm/onevision_tiny has {default}: leave it so, or "
                    "set init to random"
                )


class Qwen3Recipe(Recipe):
    """Qwen3-VL, as the paper tuned the 8B model."""

    batch: int = key(256, "Samples per update, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(32, "Samples per forward pass on one GPU.", unit="samples", source=PAPER, ge=1, le=4096)


class Gemma3Recipe(Recipe):
    """Gemma 3, as the paper tuned MedGemma 4B; its 27B has a batch of 64, 8 on a GPU."""

    batch: int = key(128, "Samples per update, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(16, "Samples per forward pass on one GPU.", unit="samples", source=PAPER, ge=1, le=4096)


class OnevisionLora(VlmLora):
    """Low-rank adapters for LLaVA-OneVision, which RadVLM's authors did not use."""

    rank: int = key(128, "Rank.", ge=1, le=1024)
    alpha: int = key(256, "Scale: the output is multiplied by alpha / rank.", ge=1, le=8192)


class OnevisionRecipe(Recipe):
    """LLaVA-OneVision, as RadVLM's paper tuned the 7B model: all parts, once over the samples."""

    model: str = key(
        "llava-hf/llava-onevision-qwen2-7b-si-hf",
        "Folder or Hugging Face id of the model that a run starts from which names none.",
        source=PAPER, min_length=1,
    )  # fmt: skip
    method: Literal["lora", "full"] = key("full", "Adapters, or parts in full.", source=PAPER)
    lora: OnevisionLora = key(OnevisionLora, "Adapters.")
    rates: dict[Part, Annotated[float, Limits(gt=0, le=1)]] = key(
        lambda: {"vision": 2e-6}, "Learning rate of a part, where it is another than `learning_rate`.", source=PAPER
    )
    epochs: int = key(1, "Passes over the samples.", source=PAPER, ge=1, le=100_000)
    batch: int = key(256, "Samples per update, over all GPUs.", unit="samples", source=AUTHORS, ge=1, le=65_536)
    micro_batch: int = key(1, "Samples per forward pass on one GPU.", unit="samples", source=AUTHORS, ge=1, le=4096)
    learning_rate: float = key(1e-5, "Highest learning rate.", source=PAPER, gt=0, le=1)
    schedule: Literal["cosine", "linear", "constant"] = key("cosine", "How it falls to 0.", source=AUTHORS)
    warmup_ratio: Share = key(0.03, "Share of the updates in which it rises.", source=AUTHORS)
    weight_decay: float = key(0.0, "Weight decay of AdamW.", source=AUTHORS, ge=0, le=1)
    betas: tuple[Share, Share] = key((0.9, 0.999), "Decay rates of AdamW's two moments.", source=AUTHORS)
    clip: float = key(1.0, "Largest gradient norm.", source=AUTHORS, gt=0, le=1e6)
    zero: Literal[2, 3] = key(3, "What DeepSpeed shares between the GPUs. 3: the weights too.", source=AUTHORS)
    max_length: int = key(
        8192, "Tokens of a sample; a picture of 512 × 512 px has 3,699, of 1024 × 1024 px 7,371.", unit="tokens",
        ge=16, le=1_000_000,
    )  # fmt: skip
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the model.", source=AUTHORS)
    gradient_checkpointing: bool = key(True, "Recompute activations to save memory.", source=AUTHORS)
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(
        6, "Tiles a side at most; how large a tile is, the model says (384 px).", unit="tiles", source=AUTHORS, ge=1,
        le=32,
    )  # fmt: skip
    max_new_tokens: int = key(
        1500, "Longest answer that it is asked for.", unit="tokens", source=AUTHORS, ge=1, le=100_000
    )
    system_prompt: SystemPrompt = key("", TOLD)
    seg_loss: SegLoss = key(SegLoss, "Weights of the losses of a run with a head of masks.")
    seg_start: Literal["lite", "sam"] = key(
        "sam",
        "What the head's SAM starts from. sam: ViT-H as published; lite: that of ROSALIA lite's base.",
    )
    seg_learning_rate: float = key(3e-4, "Highest learning rate of the head; ROSALIA's.", gt=0, le=1)
