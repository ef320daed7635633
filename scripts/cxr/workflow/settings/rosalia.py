"""Settings of the model half: training, inference, evaluation."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Replicates, Section, Share, constraint, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
BASE = "base"
"""Name of the run that is what the run `default` of the engine lite starts from."""
Part = Literal[
    "language_model", "lm_head", "embed_tokens", "multi_modal_projector", "vision_tower", "project", "mask_decoder",
    "prompt_encoder", "vision_encoder",
]  # fmt: skip
"""Parts of the model that can be trained in full."""


class LossWeights(Section):
    """Weights of the three losses."""

    text: float = key(0.5, "Weight of the cross-entropy of the answer.", source=PAPER, ge=0, le=1000)
    bce: float = key(5.0, "Weight of the binary cross-entropy of the mask.", source=PAPER, ge=0, le=1000)
    dice: float = key(1.0, "Weight of the Dice loss of the mask.", source=PAPER, ge=0, le=1000)


class Lora(Section):
    """Low-rank adapters on every linear layer of the language model, its head included (authors' code)."""

    rank: int = key(128, "Rank of the adapters; 0 for none.", source=PAPER, ge=0, le=4096)
    alpha: int = key(
        256, "Scale of the adapters: their output is multiplied by alpha / rank.", source=PAPER, ge=1, le=8192
    )
    dropout: Share = key(0.05, "Dropout before the adapters.", source=AUTHORS)


class Recipe(Section):
    """How a model is trained; the paper's values."""

    lora: Lora = key(Lora, "Adapters.", source=PAPER)
    trained: list[Part] = key(
        lambda: ["lm_head", "embed_tokens", "project", "mask_decoder"],
        "Parts that are trained in full; the rest is frozen except for the adapters.",
        source=AUTHORS,
    )
    epochs: int = key(15, "Passes over the positives.", source=PAPER, ge=1, le=100_000)
    batch: int = key(256, "Pairs per update, over all GPUs.", unit="pairs", source=PAPER, ge=1, le=65_536)
    micro_batch: int = key(
        128,
        "Pairs per forward pass on one GPU; fewer if compute.gpus divides a batch into smaller parts.",
        unit="pairs",
        source=AUTHORS,
        ge=1,
        le=4096,
    )
    learning_rate: float = key(3e-4, "Highest learning rate.", source=PAPER, gt=0, le=1)
    warmup: int = key(
        100, "Number of updates in which the learning rate rises from 0; afterwards it falls to 0.", source=PAPER, ge=0
    )
    betas: tuple[Share, Share] = key((0.9, 0.95), "Decay rates of AdamW's two moments.", source=AUTHORS)
    weight_decay: float = key(0.0, "Weight decay of AdamW.", source=AUTHORS, ge=0, le=1)
    clip: float = key(1.0, "Largest gradient norm.", source=AUTHORS, gt=0, le=1e6)
    loss: LossWeights = key(LossWeights, "Weights of the losses.", source=PAPER)
    dice_on: Literal["positives", "all"] = key("positives", "Masks that enter the Dice loss.", source=PAPER)
    balance: Literal["expectation", "exact", "all"] = key(
        "expectation",
        "How positives and negatives are balanced. expectation: 1:1 over an epoch, as in the authors' code; exact: 1:1 "
        "within every batch; all: every pair once per epoch, so that the answer is no as often as in the dataset.",
        source=AUTHORS,
    )
    equalise: Share = key(0.5, "Probability that an image's histogram is equalised.", source=AUTHORS)
    keep: Literal["giou", "mean"] = key(
        "giou",
        "The epoch that is kept is the best on the validation split by: giou, gIoU of the positives (authors' code); "
        "mean, the mean of that and of N-Acc, which a model that marks every image cannot win.",
        source=AUTHORS,
    )
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the model.", source=AUTHORS)
    gradient_checkpointing: bool = key(True, "Recompute activations to save memory.", source=AUTHORS)


class LiteSizes(Section):
    """Sizes of the small model of the engine lite."""

    image: int = key(128, "Side of the mask branch's image.", unit="pixels", ge=64, le=1024)
    patch: int = key(8, "Side of the mask branch's patches.", unit="pixels", ge=4, le=32)
    width: int = key(32, "Channels of the mask branch's encoder.", ge=16, le=1024, multiple_of=16)
    depth: int = key(3, "Layers of the mask branch's encoder.", ge=1, le=32)
    clip_image: int = key(128, "Side of the image that the language model receives.", unit="pixels", ge=32, le=336)
    clip_patch: int = key(16, "Side of the patches of the language model's image.", unit="pixels", ge=4, le=32)
    hidden: int = key(96, "Channels of the language model.", ge=32, le=4096, multiple_of=16)
    layers: int = key(2, "Layers of the language model.", ge=1, le=32)

    @constraint
    def _patches_fill_the_picture(self) -> None:
        for side, patch in (("image", self.patch), ("clip_image", self.clip_patch)):
            if getattr(self, side) % patch:
                raise ValueError(f"{side} is {getattr(self, side)}, not a multiple of its patch {patch}: change one")


class LiteTraining(Recipe):
    """The engine lite: a small model of the same classes, trained on a CPU."""

    runner: Literal["plain"] = key("plain", "One process.")
    init: Literal["base", "random"] = key(
        "base",
        "base: the weights of resources/rosalia, learnt from a synthetic cohort; random: nothing, which any sizes can "
        "start from.",
    )
    sizes: LiteSizes = key(LiteSizes, "Sizes of the model; the base has these.")
    lora: Lora = key(lambda: Lora(rank=0), "Adapters.")
    trained: list[Part] = key(
        lambda: [
            "language_model", "lm_head", "embed_tokens", "multi_modal_projector", "vision_tower", "project",
            "mask_decoder", "prompt_encoder", "vision_encoder",
        ],
        "Parts that are trained in full.",
    )  # fmt: skip
    epochs: int = key(10, "Passes over the pairs; from random weights take 40 or more.", ge=1, le=100_000)
    batch: int = key(16, "Pairs per update.", unit="pairs", ge=1, le=65_536)
    micro_batch: int = key(16, "Pairs per forward pass.", unit="pairs", ge=1, le=4096)
    learning_rate: float = key(2e-4, "Highest learning rate; from random weights take 2e-3.", gt=0, le=1)
    warmup: int = key(10, "Number of updates in which the learning rate rises from 0; afterwards it falls to 0.", ge=0)
    balance: Literal["expectation", "exact", "all"] = key(
        "all",
        "How positives and negatives are balanced. expectation: 1:1 over an epoch; exact: 1:1 within every batch; all: "
        "every pair once per epoch, so that the answer is no as often as in the dataset.",
    )
    keep: Literal["giou", "mean"] = key(
        "mean",
        "How the epoch to keep is chosen on the validation split: giou, by the gIoU of the positives (authors' code); "
        "mean, by the mean of that and N-Acc.",
    )
    dtype: Literal["bfloat16", "float32"] = key("float32", "Number type of the model.")
    gradient_checkpointing: bool = key(False, "Recompute activations to save memory.")


class RosaliaTraining(Recipe):
    """The engine rosalia: LISA-7B, fine-tuned as in the paper."""

    runner: Literal["plain", "deepspeed"] = key(
        "deepspeed", "deepspeed: ZeRO-2, one process per GPU (compute.gpus); plain: one process.", source=AUTHORS
    )
    init: Literal["lisa", "paper_code"] = key(
        "lisa",
        "lisa: all of LISA-7B-v1 (paper); paper_code: only its language model, with the mask branch from SAM and a "
        "random projection, as in the published code.",
        source=PAPER,
    )


class Run(Section):
    """One model: how it is trained, or which published model it is, and its test set."""

    thresholds: str = key("default", "Threshold set whose dataset the model is trained on.")
    lines: str = key("", "JSONL to train on instead of that dataset's train.jsonl (paraphrased instructions).")
    test: str = key("", "Threshold set whose test split the model is scored on; empty: the one of its training.")
    paraphrases: bool = key(
        False,
        "Also train on the paraphrases (C.3): each text is drawn uniformly from the original and its paraphrases.",
        source=PAPER,
    )
    weights: Literal["", "lisa", "rosalia", "lite"] = key(
        "",
        "Model to use or to start from: rosalia (ROSALIA-7B-v1, the paper's own) or lisa (LISA-7B-v1); lite: the base "
        "of the engine lite, with `trained: false`; empty: the engine's own start.",
    )
    trained: bool = key(True, "Whether the model is trained; if false, the model in `weights` is used unchanged.")

    @constraint
    def _what_is_not_trained_is_published(self) -> None:
        if not self.trained and not self.weights:
            raise ValueError("trained is false, but weights names no model: set weights to rosalia, lisa or lite")
        if self.trained and self.weights == "lite":
            raise ValueError(
                "weights is 'lite', which is asked as it is: set trained to false, or leave weights empty, for the "
                "engine lite starts from its base by itself (training.lite.init)"
            )
        if not self.trained and self.lines:
            raise ValueError(f"lines is {self.lines!r}, but trained is false: leave one out")
        if not self.trained and self.paraphrases:
            raise ValueError("paraphrases is true, but trained is false, and only a training draws them: leave one out")


class Training(Section):
    """ROSALIA: fine-tuning."""

    engine: Literal["lite", "rosalia"] = key(
        "lite", "lite: a small model of the same classes, on a CPU; rosalia: the paper's model, from LISA-7B."
    )
    lite: LiteTraining = key(LiteTraining, "Settings of the engine lite.")
    rosalia: RosaliaTraining = key(RosaliaTraining, "Settings of the engine rosalia.", source=PAPER)
    runs: dict[RunName, Run] = key(
        dict,
        "Models by name, trained here or used unchanged; the name is the wildcard {run}. Empty: `default`, trained on "
        "the threshold set default, and with the engine lite also `base`, from which that training starts.",
    )
    conversation: Literal["llava_v1", "llava_llama_2"] = key(
        "llava_v1", "Conversation template around an instruction.", source=AUTHORS
    )
    max_length: int = key(512, "Longest prompt and answer, image included.", unit="tokens", source=AUTHORS, ge=64)
    fit: Literal["pad", "stretch"] = key("pad", "How an image that is not square is fitted to the model's square.")
    published_mismatch: bool = key(
        False,
        "Train and score as in the published code: references padded to the square, predictions cropped and stretched.",
        source=AUTHORS,
    )
    validate_every: int = key(1, "Epochs between two validations.", unit="epochs", ge=1)
    nan_limit: int = key(10, "Number of updates with a NaN loss, each skipped, after which the run stops.", ge=1)

    def named_runs(self) -> dict[str, Run]:
        """Return the runs, of which there is always one."""
        if self.runs:
            return dict(self.runs)
        runs = {"default": Run()}
        if self.engine == "lite" and self.lite.init == "base":
            runs[BASE] = Run(weights="lite", trained=False)
        return runs

    @constraint
    def _mismatch_is_of_padded_pictures(self) -> None:
        if self.published_mismatch and self.fit != "pad":
            raise ValueError(f"published_mismatch is set, but fit is {self.fit!r}: set fit to pad")

    @constraint
    def _the_base_has_its_sizes(self) -> None:
        if self.engine == "lite" and self.lite.init == "base":
            base_sizes = LiteSizes()
            for name, value in self.lite.sizes.as_dict().items():
                if value != getattr(base_sizes, name):
                    raise ValueError(
                        f"lite.sizes.{name} is {value}, but the base has {getattr(base_sizes, name)}: leave it so, or "
                        "set lite.init to random"
                    )

    @constraint
    def _the_engine_starts_from_weights(self) -> None:
        for name, run in self.runs.items():
            if run.trained and run.weights and self.engine != "rosalia":
                raise ValueError(
                    f"runs.{name}.weights is {run.weights!r}, but the engine {self.engine!r} starts from none: set "
                    f"engine to rosalia to train it further, or runs.{name}.trained to false to ask it as it is"
                )

    @constraint
    def _recipes_can_be_followed(self) -> None:
        for name in ("lite", "rosalia"):
            recipe = getattr(self, name)
            if not recipe.trained and not recipe.lora.rank:
                raise ValueError(f"{name}.trained is empty and lora.rank 0, so nothing is trained: name a part")
            if recipe.batch % recipe.micro_batch:
                raise ValueError(
                    f"{name}.batch is {recipe.batch}, no multiple of micro_batch {recipe.micro_batch}: change one"
                )
            if recipe.balance == "exact" and recipe.micro_batch % 2:
                raise ValueError(
                    f"{name}.micro_batch is {recipe.micro_batch}, which has no half for balance exact: make it even"
                )


class Inference(Section):
    """Masks and answers of a trained model."""

    split: Literal["train", "validate", "test"] = key("test", "Split whose instructions the model answers.")
    paraphrases: bool = key(
        False, "Also ask each instruction in one wording of each persona (C.3), for a comparison in the evaluation."
    )
    text: bool = key(True, "Whether to generate the answers' text too; masks alone are much faster.")
    max_new_tokens: int = key(512, "Longest answer.", unit="tokens", source=AUTHORS, ge=1, le=4096)
    equalise: bool = key(True, "Equalise the histogram of every image, as in the authors' evaluation.", source=AUTHORS)
    size: int = key(1024, "Side of the masks.", unit="pixels", source=AUTHORS, ge=64, le=4096, multiple_of=8)


FILE_ADAPTERS = ("jsonl", "text4seg")
"""Adapters that read one file; the others read a folder."""


class Others(Section):
    """Predictions of another model."""

    adapter: Literal[
        "jsonl", "png", "lisa", "text4seg", "text4seg_sam", "pixellm", "biomedparse", "reclmis", "imisnet", "everything"
    ] = key(
        "jsonl", "Format of the predictions (docs/systems/evaluation.md); everything: the whole image, as a baseline."
    )
    path: str = key("", "File or folder of the predictions.")
    test: str = key("default", "Threshold set for whose split the predictions were made.")
    threshold: float | None = key(None, "Value above which a pixel is foreground; null for the model's own.")
    grid: int = key(24, "Side of Text4Seg's grid of text: 24 for its p24, 16 for p16.", unit="cells", ge=4, le=128)


class Evaluation(Section):
    """Scores of ROSALIA and of other models (Tables 4, 5, 6, 14)."""

    size: int = key(
        1024,
        "Side of the square in which masks are compared.",
        unit="pixels",
        source=AUTHORS,
        ge=64,
        le=4096,
        multiple_of=8,
    )
    replicates: Replicates = key(1000, "Bootstrap replicates, by patient; 0 for no intervals, else 100 or more.")
    interval: Share = key(0.95, "Coverage of the confidence intervals.")
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "How to count a pair whose prediction is missing or damaged: as wrong, or not at all."
    )
    reviewed: str = key("", "Text file of the ids of pairs that reviewers rejected; they are left out.", source=PAPER)
    predictions: dict[RunName, Others] = key(dict, "Predictions of other models, by name.")

    @constraint
    def _predictions_have_a_path(self) -> None:
        for name, prediction in self.predictions.items():
            if not prediction.path and prediction.adapter != "everything":
                raise ValueError(f"predictions.{name}.path is empty: give the file or folder of the predictions")
            if prediction.path and prediction.adapter == "everything":
                raise ValueError(
                    f"predictions.{name}.path is {prediction.path!r}, but everything reads none: leave it out"
                )
