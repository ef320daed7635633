"""Settings for tuning vision-language models: the runs, and a recipe (how to tune) per kind of model."""

import math
import re
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from cxr.base.settings import AUTHORS, PAPER, Check, Limits, Section, Share, constraint, key
from cxr.nets.microbatch import SharedBatch

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Engine = Literal["tiny", "onevision_tiny", "qwen25vl", "qwen3vl", "gemma3", "onevision"]
TINY = ("tiny", "onevision_tiny")  # engines that make a small random model, on a CPU
Probed = Literal["", "probe", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]
Part = Literal["vision", "projector", "language"]
Rates = dict[Part, Annotated[float, Limits(gt=0, le=1)]]


def _without_marks(text: str) -> str:
    if mark := re.search(r"<[^<>\n]+>", text):
        raise ValueError(
            f"{text!r} contains {mark[0]!r}, which a model may read as a special token: leave out the angle brackets"
        )
    return text


SystemPrompt = Annotated[str, Check(_without_marks)]
SYSTEM_PROMPT = "System prompt in tuning and inference. If empty, it is `You are a helpful assistant`."


def _tiles(text: str) -> str:
    if not re.fullmatch(r"anyres_max_[1-9]\d{0,3}", text):
        raise ValueError(f"{text!r} is no maximum of tiles: give anyres_max_ and a number, such as anyres_max_9")
    return text


Tiles = Annotated[str, Check(_tiles)]
MOST_TILES = "anyres_max_<n>: if an image has more than n tiles, its features are downsampled to those of n tiles."


class VlmLora(Section):
    """Low-rank adapters."""

    dropout: ClassVar[float] = 0.05  # dropout before the adapters (MedGround's paper is silent; the library's example)
    rank: int = key(8, "Rank of the adapters; a higher rank trains more parameters.", source=PAPER, ge=1, le=1024)
    alpha: int = key(32, "Scale of adapters; their output is multiplied by alpha / rank.", source=PAPER, ge=1, le=8192)
    target: Literal["language", "all"] = key(
        "language", "Linear layers with adapters. language: in the language model; all: in all parts, as in the paper."
    )


class Recipe(SharedBatch, Section):
    """Settings of how a model is tuned. The defaults are those of MedGround's paper."""

    family: ClassVar[str] = ""  # module of the model's architecture; empty: the engine's name
    side: ClassVar[int] = 0  # maximum side of a run's images, px; 0: no limit
    max_new_tokens: ClassVar[int] = 0  # maximum length of a run's answers, tokens; 0: as ``vlm.answers`` limits it
    method: Literal["lora", "full"] = key("lora", "lora: train adapters; full: train all of `parts`.", source=PAPER)
    lora: VlmLora = key(VlmLora, "Low-rank adapters (method lora).", source=PAPER)
    parts: list[Part] = key(lambda: ["vision", "projector", "language"], "Parts to train (method full).", min_length=1)
    rates: Rates = key(dict, "{part: peak learning rate}; other parts use `learning_rate`.")
    epochs: int = key(3, "Number of passes over the samples.", source=PAPER, ge=1, le=100_000)
    updates: int = key(0, "Total number of optimizer steps; 0: as many as `epochs` takes.", ge=0, le=10_000_000)
    batch: int = key(64, "Samples per optimizer step, over all GPUs.", unit="samples", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(4, "Maximum samples per forward pass of a GPU.", unit="samples", source=PAPER, ge=1, le=4096)
    learning_rate: float = key(2e-4, "Peak learning rate, at the end of the warm-up.", source=PAPER, gt=0, le=1)
    warmup_ratio: Share = key(0.1, "Fraction of the steps in which the learning rate rises to its peak.", source=PAPER)
    drop_last: bool = key(False, "If true, the incomplete batch of an epoch is dropped, as in RadVLM's code.")
    loss_on: Literal["answers", "published"] = key(
        "answers",
        "Tokens in the loss. answers: those of answers; published: also marks between turns (RadVLM's code).",
        source=PAPER,
    )
    max_length: int = key(
        2048, "Maximum tokens of a sample with its image; longer ones are excluded.", source=PAPER, ge=16, le=1_000_000
    )
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Floating-point type of the model.", source=PAPER)
    runner: Literal["plain", "deepspeed"] = key("deepspeed", "plain: one process; deepspeed: a process per GPU.")
    zero: Literal[2, 3] = key(2, "What DeepSpeed splits among GPUs. 2: gradients and moments; 3: also the weights.")

    def rate(self, update: int, total: int) -> float:
        """Return the learning-rate factor of a step (from 0): linear warm-up, then a cosine to 0."""
        warmup = math.ceil(self.warmup_ratio * total)
        if update < warmup:
            return (update + 1) / warmup
        done = (update - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * done))


class TinyRecipe(
    Recipe, method="full", updates=300, batch=16, micro_batch=16, learning_rate=4e-3, dtype="float32", runner="plain"
):
    """Tuning settings of the engine ``tiny``: a small random model of a real architecture, to test tuning on a CPU."""

    family: ClassVar[str] = "qwen25vl"
    side: ClassVar[int] = 112


class OnevisionTinyRecipe(TinyRecipe, paper={"warmup_ratio": 0.03}, rates=lambda: {"vision": 8e-5}, updates=1000):
    """Tuning settings of the engine ``onevision_tiny``: LLaVA-OneVision with half a million parameters, on a CPU."""

    family: ClassVar[str] = "onevision"
    side: ClassVar[int] = 128
    max_new_tokens: ClassVar[int] = 300
    learning_rate: float = key(4e-4, "Peak learning rate; use five times as much with `init: random`.", gt=0, le=1)
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(2, "Maximum tiles along a side; each has 64 px.", unit="tiles", ge=1, le=32)
    system_prompt: SystemPrompt = key("", SYSTEM_PROMPT)
    seg_start: Literal["base", "lite", "sam"] = key(
        "base", "Initial mask head. base: that of the base model; lite: that of ROSALIA lite; sam: published SAM."
    )
    seg_learning_rate: float = key(
        5e-4, "Peak learning rate of the mask head; use four times as much with `init: random`.", gt=0, le=1
    )


class Qwen3Recipe(Recipe, paper={"batch": 256, "micro_batch": 32}):
    """Tuning settings of Qwen3-VL, as MedGround's paper tuned the 8B model."""


class Gemma3Recipe(Recipe, paper={"batch": 128, "micro_batch": 16}):
    """Tuning settings of Gemma 3, as MedGround's paper tuned MedGemma 4B (and 27B with a batch of 64, 8 per GPU)."""


class OnevisionLora(VlmLora, rank=128, alpha=256):
    """Low-rank adapters for LLaVA-OneVision. RadVLM's authors did not use adapters."""


class OnevisionRecipe(
    Recipe,
    paper={"method": "full", "rates": lambda: {"vision": 2e-6}, "epochs": 1, "learning_rate": 1e-5},
    authors={"batch": 256, "micro_batch": 1, "warmup_ratio": 0.03, "zero": 3},
):
    """Tuning settings of LLaVA-OneVision, as RadVLM's paper tuned the 7B model: all parts, for one epoch."""

    max_new_tokens: ClassVar[int] = 1500  # of the authors' code
    model: str = key(
        "llava-hf/llava-onevision-qwen2-7b-si-hf", "Base model of runs without a `model`.", source=PAPER, min_length=1
    )
    lora: OnevisionLora = key(OnevisionLora, "Low-rank adapters (method lora).")
    max_length: int = key(
        8192, "Maximum tokens of a sample (images: 3,699 at 512 × 512 px, 7,371 at 1024 × 1024).", ge=16, le=1_000_000
    )
    tiles: Tiles = key("anyres_max_9", MOST_TILES, source=AUTHORS)
    grid: int = key(6, "Maximum tiles along a side; each has 384 px.", unit="tiles", source=AUTHORS, ge=1, le=32)
    system_prompt: SystemPrompt = key("", SYSTEM_PROMPT)
    seg_start: Literal["lite", "sam"] = key("sam", "Initial mask head. sam: SAM's ViT-H; lite: that of ROSALIA lite.")
    seg_learning_rate: float = key(3e-4, "Peak learning rate of the mask head, as for ROSALIA.", gt=0, le=1)


class Run(Section):
    """One model, and the samples on which it is tuned."""

    engine: Engine = key("tiny", "tiny, onevision_tiny: a small model on a CPU. Other values: families of models.")
    lines: str = key("medground:dataset", "Samples: medground:dataset, medground:label_<kind>, radvlm:<mix> or a file.")
    model: str = key("", "Base model, a folder or Hugging Face id. Empty: random (tiny engines) or onevision.model.")
    revision: str = key("", "Commit of the model on Hugging Face.")
    convention: Probed = key("", "Box format. Empty: that of the model's authors; probe: the best on validation data.")
    trained: bool = key(True, "If true, the model is tuned; if false, the published model answers unchanged.")
    tasks: list[str] = key(list, "Tasks to tune on and to score (of a RadVLM mix or a file); empty: all.")
    updates: int = key(0, "Total number of optimizer steps; 0: as in the engine's settings.", ge=0, le=10_000_000)
    init: Literal["", "base", "random"] = key("", "Initial weights of onevision_tiny. Empty or base: trained ones.")
    segmentation: Literal["none", "head"] = key(
        "none", "head: also learn a mask for each [SEG] in answers (RadVLM mixes; engines onevision, onevision_tiny)."
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "Images that the model sees. frame: frames without padding; original: the image files (RadVLM mixes)."
    )
    picture_px: int = key(1024, "Originals are shrunk to at most this side. 0: no limit.", unit="px", ge=0, le=65_536)

    @constraint
    def _fits(self) -> None:
        if 0 < self.picture_px < 56:
            raise ValueError(f"picture_px is {self.picture_px}: give at least 56, or 0 for original sizes")
        if self.engine not in (*TINY, "onevision") and not self.model:
            raise ValueError(f"model is empty, but the engine {self.engine} needs a base model: give a folder or an id")
        if not self.trained and not self.model and self.engine in TINY:
            raise ValueError("trained is false, but model is empty, so there is nothing to ask: give a model")
        if not self.trained and self.segmentation == "head":
            raise ValueError("segmentation is 'head', but trained is false: set trained: true or segmentation: none")
        if self.trained and self.convention == "probe":
            raise ValueError("convention is 'probe', but tuning needs a fixed format: name one, or leave it empty")
        for name in ("tasks", "updates", "init"):
            if getattr(self, name) and not self.trained:
                problem = f"{name} is {getattr(self, name)!r}, but trained is false, so nothing is tuned"
                raise ValueError(f"{problem}: leave {name} out")
        if self.tasks and self.lines.startswith("medground:"):
            lines_clause = f"lines is {self.lines!r}, whose lines have no task"
            raise ValueError(f"tasks is {self.tasks!r}, but {lines_clause}: leave tasks out, or name radvlm:<mix>")
        if self.init and self.engine != "onevision_tiny":
            raise ValueError(f"init is {self.init!r}, but the engine {self.engine} has no such choice: leave init out")


class VlmTuning(Section):
    """Fine-tuning of vision-language models."""

    runs: dict[RunName, Run] = key(
        lambda: {
            "medground": Run(),
            "medground_label_replaced": Run(lines="medground:label_replaced"),
            "radvlm": Run(engine="onevision_tiny", lines="radvlm:all"),
        },
        "Models by name, which are tuned or, with `trained: false`, asked unchanged.",
    )
    balance: Literal["none", "domain"] = key(
        "none", "domain: samples of rarer image domains are repeated until all are equally frequent.", source=PAPER
    )
    seed: int = key(42, "Seed of the order of samples, of dropout and of new adapters.", source=PAPER, ge=0)
    qwen25vl: Recipe = key(Recipe, "Tuning settings for Qwen2.5-VL and models of its architecture.", source=PAPER)
    qwen3vl: Qwen3Recipe = key(Qwen3Recipe, "Tuning settings for Qwen3-VL.", source=PAPER)
    gemma3: Gemma3Recipe = key(Gemma3Recipe, "Tuning settings for Gemma 3 and MedGemma.", source=PAPER)
    onevision: OnevisionRecipe = key(OnevisionRecipe, "Tuning settings for LLaVA-OneVision and RadVLM.")
    tiny: TinyRecipe = key(TinyRecipe, "Tuning settings for a small random model.")
    onevision_tiny: OnevisionTinyRecipe = key(OnevisionTinyRecipe, "Tuning settings for a small LLaVA-OneVision.")

    @constraint
    def _models_are_named(self) -> None:
        for name, run in self.runs.items():
            if run.engine == "onevision" and not run.model:
                self.runs[name] = replace(run, model=self.onevision.model)
