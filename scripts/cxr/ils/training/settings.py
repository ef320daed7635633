"""Settings of the training stage: how each engine trains a model, and the models to train (runs)."""

from typing import ClassVar, Literal, get_args

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key, redefine
from cxr.ils.settings import LiteSizes, PromptSettings, RunName
from cxr.nets.microbatch import SharedBatch

BASE = "base"
"""Name of the run that uses the initial model of the engine lite without training."""
Part = Literal[
    "language_model", "lm_head", "embed_tokens", "multi_modal_projector", "vision_tower", "project", "mask_decoder",
    "prompt_encoder", "vision_encoder",
]  # fmt: skip
"""Parts of the model whose weights can be trained directly, not only through adapters."""
STARTS = (("rosalia", "lisa"), ("rosalia", "rosalia"))
"""(engine, name of a published model that this engine can train further)."""
SizeName = Literal["image", "patch", "width", "depth", "clip_image", "clip_patch", "hidden", "layers"]


class LoraSettings(Section):
    """Low-rank adapters on every linear layer of the language model, its head included (authors' code)."""

    rank: int = key(128, "Rank of the adapters; 0: no adapters.", source=PAPER, ge=0, le=4096)
    alpha: int = key(
        256, "Scale of the adapters: their output is multiplied by alpha / rank.", source=PAPER, ge=1, le=8192
    )
    dropout: Share = key(0.05, "Dropout probability at the input of the adapters.", source=AUTHORS)


class Recipe(SharedBatch, Section):
    """Settings that say how a model is trained. The defaults are the paper's."""

    betas: ClassVar[tuple[float, float]] = (0.9, 0.95)  # Decay rates of AdamW's two moments (authors' code)
    weight_decay: ClassVar[float] = 0.0  # Weight decay of AdamW (authors' code)
    equalise: ClassVar[float] = 0.5
    """Probability that an image's histogram is equalised (authors' code)."""
    lora: LoraSettings = key(LoraSettings, "Low-rank adapters of the language model.", source=PAPER)
    trained: list[Part] = key(
        lambda: ["lm_head", "embed_tokens", "project", "mask_decoder"],
        "Parts of the model that are trained directly, not only through adapters.", source=AUTHORS,
    )  # fmt: skip
    epochs: int = key(
        15, "Passes over the positive pairs, or over all pairs if balance is all.", source=PAPER, ge=1, le=100_000
    )
    batch: int = key(256, "Pairs per optimiser step, over all GPUs.", unit="pairs", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(
        128, "Maximum pairs per forward pass on one GPU.", unit="pairs", source=AUTHORS, ge=1, le=4096
    )
    learning_rate: float = key(3e-4, "Peak learning rate.", source=PAPER, gt=0, le=1)
    warmup: int = key(
        100, "Steps in which the learning rate rises from 0 to its peak, before it falls to 0.", source=PAPER, ge=0
    )
    balance: Literal["expectation", "exact", "all"] = key(
        "expectation",
        "Negative pairs per epoch. expectation: as many as positive pairs, shuffled with them; exact: as many as "
        "positive pairs in every batch; all: every negative pair once.",
        source=AUTHORS,
    )
    keep: Literal["giou", "mean"] = key(
        "giou",
        "Validation score that selects the epoch whose weights are kept. giou: mean IoU of positive pairs (gIoU); "
        "mean: mean of gIoU and N-Acc, the fraction of negative pairs with an empty mask.",
        source=AUTHORS,
    )
    runner: Literal["plain", "deepspeed"] = key(
        "deepspeed", "How to train. deepspeed: ZeRO-2, a process per GPU; plain: one process in total.", source=AUTHORS
    )
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Floating-point type of the weights.", source=AUTHORS)
    gradient_checkpointing: bool = key(
        True, "Whether to recompute activations for gradients, which saves memory but is slower.", source=AUTHORS
    )


class LiteRecipe(
    Recipe,
    lora=lambda: LoraSettings(rank=0),
    trained=lambda: list(get_args(Part)),
    epochs=10,
    batch=16,
    micro_batch=16,
    learning_rate=2e-4,
    warmup=10,
    balance="all",
    keep="mean",
    dtype="float32",
    gradient_checkpointing=False,
):
    """Settings of the engine lite, a small model of the same architecture that is trained on a CPU."""

    init: Literal["base", "random"] = key(
        "base",
        "Initial weights. base: those in resources/rosalia; random: random weights, which need at least 40 epochs and "
        "learning_rate 2e-3.",
    )
    sizes: dict[SizeName, int] = key(
        dict, "Sizes of the network that differ from the model in resources/rosalia, {name: value}. Needs init: random."
    )
    runner: Literal["plain"] = redefine(Recipe, "runner", "plain")

    @property
    def model_sizes(self) -> LiteSizes:
        """All sizes of the model. Sizes that ``sizes`` lacks have their defaults."""
        return LiteSizes(**self.sizes)

    @constraint
    def _sizes_fit(self) -> None:
        sizes = self.model_sizes
        for name, unit in (("width", 16), ("hidden", 16), ("image", sizes.patch), ("clip_image", sizes.clip_patch)):
            if min(unit, getattr(sizes, name)) < 1 or getattr(sizes, name) % unit:
                raise ValueError(f"sizes.{name} is {getattr(sizes, name)}: make it a multiple of {unit}")


class RosaliaRecipe(Recipe):
    """Settings of the engine rosalia, which fine-tunes LISA-7B as in the paper."""

    init: Literal["lisa", "paper_code"] = key(
        "lisa",
        "Initial weights. lisa: LISA-7B-v1; paper_code: LISA-7B-v1's language model, the original SAM and a random "
        "projection between them.",
        source=PAPER,
    )


class TrainingRun(Section):
    """A model to train or to use unchanged, and its test set."""

    thresholds: str = key("default", "Threshold set whose dataset the model is trained on.")
    lines: str = key("", "JSONL file to train on instead of the dataset's train.jsonl.")
    test: str = key("", "Threshold set whose test split the model is scored on; empty: the set in `thresholds`.")
    paraphrases: bool = key(
        False,
        "If true, each sample uses at random its instruction or a paraphrase (C.3). If false, its instruction.",
        source=PAPER,
    )
    weights: Literal["", "lisa", "rosalia", "lite"] = key(
        "",
        "Published model to start from, or to use if trained is false: rosalia, lisa or lite (resources/rosalia); "
        "empty: the weights that `init` of the engine selects.",
    )
    trained: bool = key(True, "Whether to train the model; false: the model that `weights` names is used unchanged.")

    @constraint
    def _what_is_not_trained_is_published(self) -> None:
        if not self.trained and not self.weights:
            raise ValueError("trained is false, but weights names no model: set weights to rosalia, lisa or lite")
        unused = [name for name in ("lines", "paraphrases") if getattr(self, name)]
        if not self.trained and unused:
            raise ValueError(f"{unused[0]} has no effect if trained is false: remove {unused[0]} or trained")


class EngineSettings(PromptSettings):
    """Settings that affect the training of every run."""

    engine: Literal["lite", "rosalia"] = key(
        "lite", "Model to train. lite: a small model on a CPU; rosalia: the paper's model, which starts from LISA-7B."
    )
    lite: LiteRecipe = key(LiteRecipe, "Settings of the engine lite.")
    rosalia: RosaliaRecipe = key(RosaliaRecipe, "Settings of the engine rosalia.", source=PAPER)

    @constraint
    def _the_base_has_its_sizes(self) -> None:
        if self.engine == "lite" and self.lite.init == "base":
            base_sizes = LiteSizes()
            for name, value in self.lite.sizes.items():
                if value != (size := getattr(base_sizes, name)):
                    raise ValueError(
                        f"lite.sizes.{name} is {value}, not {size} as in resources/rosalia: set lite.init to random"
                    )

    @constraint
    def _recipes_can_be_followed(self) -> None:
        for name in ("lite", "rosalia"):
            recipe = getattr(self, name)
            if not recipe.trained and not recipe.lora.rank:
                raise ValueError(f"{name}.trained is empty and lora.rank is 0, so nothing is trained: set one of them")
            if recipe.batch % recipe.micro_batch:
                raise ValueError(
                    f"{name}.batch is {recipe.batch}, no multiple of micro_batch {recipe.micro_batch}: change one"
                )
            if recipe.balance == "exact" and recipe.micro_batch % 2:
                raise ValueError(
                    f"{name}.micro_batch is {recipe.micro_batch}, but balance exact needs an even number: change one"
                )


class TrainingSettings(EngineSettings):
    """Settings of the fine-tuning of ROSALIA."""

    runs: dict[RunName, TrainingRun] = key(
        dict, "Models to train or use, by name. Empty: `default` and, with engine lite, the untrained `base`."
    )

    def named_runs(self) -> dict[str, TrainingRun]:
        """Return {name: run} of the settings, or of the default runs if the settings have none."""
        if self.runs:
            return dict(self.runs)
        runs = {"default": TrainingRun()}
        if self.engine == "lite" and self.lite.init == "base":
            runs[BASE] = TrainingRun(weights="lite", trained=False)
        return runs

    @constraint
    def _the_engine_starts_from_weights(self) -> None:
        for name, run in self.runs.items():
            if run.trained and run.weights and (self.engine, run.weights) not in STARTS:
                raise ValueError(
                    f"runs.{name}.weights is {run.weights!r}, which the engine {self.engine!r} cannot train: set "
                    f"engine to rosalia to train lisa or rosalia, or runs.{name}.trained to false to use it unchanged"
                )


class TrainingOptions(EngineSettings):
    """Settings that affect a training."""

    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """Training settings of the selected engine."""
        return getattr(self, self.engine)
