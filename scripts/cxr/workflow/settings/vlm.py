"""Settings of vision-language models: tuning them, asking them."""

from dataclasses import replace
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key, refuse_equal_names
from cxr.radvlm.instructions.settings import Task
from cxr.vlm.tuning.settings import (
    Gemma3Recipe,
    OnevisionRecipe,
    OnevisionTinyRecipe,
    Qwen3Recipe,
    Recipe,
    TinyRecipe,
)

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
SetName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Engine = Literal["tiny", "onevision_tiny", "qwen25vl", "qwen3vl", "gemma3", "onevision"]
TINY = ("tiny", "onevision_tiny")
"""Engines that make a small random model, on a CPU."""
Convention = Literal["", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]
Probed = Literal["", "probe", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]


class Run(Section):
    """One model: what it is, and what it is tuned on."""

    engine: Engine = key("tiny", "tiny, onevision_tiny, or the model's architecture.")
    lines: str = key(
        "medground:dataset", "medground:dataset, medground:label_<kind>, radvlm:<mix>, or a file of lines."
    )
    model: str = key(
        "",
        "Folder or Hugging Face id of the base model; empty for tiny engines, and for onevision to use its recipe's.",
    )
    revision: str = key("", "Commit of the Hugging Face model.")
    convention: Probed = key(
        "",
        "How the model writes coordinates. Empty: as its authors state; probe (only if trained is false): the "
        "convention with the highest score on validation lines.",
    )
    trained: bool = key(True, "Whether the model is tuned; false: it is asked as published.")
    tasks: list[Task] = key(
        list,
        "Tasks of a RadVLM mix or a file of lines to tune on; empty: all. RadVLM's evaluation scores the run only on "
        "these tasks.",
    )
    updates: int = key(0, "Total optimizer steps, in place of the recipe's; 0 uses the recipe's.", ge=0, le=10_000_000)
    init: Literal["", "base", "random"] = key(
        "", "Initial weights of onevision_tiny for this run; empty: as in its recipe."
    )
    wording: str = key("", "File of another wording of the questions, such as resources/vlm/wording.yaml.")
    segmentation: Literal["none", "head"] = key(
        "none",
        "head: the model also learns a mask for each [SEG] in its answers (RadVLM mixes; engines onevision and "
        "onevision_tiny).",
    )
    pictures: Literal["frame", "original"] = key(
        "frame",
        "Images in tuning and asking. frame: the frame of 512 × 512 px without its padding; original: the image file, "
        "decoded like its frame (the paper; RadVLM mixes only).",
    )
    picture_px: int = key(
        1024,
        "Maximum side of an original; larger ones are shrunk; 0: no limit. The tiny engines use their `side` if it is "
        "smaller.",
        unit="px", ge=0, le=65_536,
    )  # fmt: skip

    @constraint
    def _fits(self) -> None:
        if 0 < self.picture_px < 56:
            raise ValueError(f"picture_px is {self.picture_px}: give at least 56, or 0 for originals as they are")
        if self.engine not in (*TINY, "onevision") and not self.model:
            raise ValueError(f"model is empty, but the engine {self.engine} starts from one: give a folder or an id")
        if not self.trained and not self.model and self.engine in TINY:
            raise ValueError("trained is false, but model is empty, so there is nothing to ask: give one")
        if not self.trained and self.segmentation == "head":
            raise ValueError("segmentation is 'head', but trained is false, so no head is learned: set one of both")
        if self.trained and self.convention == "probe":
            raise ValueError("convention is 'probe', but a run that is trained learns one: name it, or set it to ''")

    @constraint
    def _tunes(self) -> None:
        for name in ("tasks", "updates", "init"):
            if getattr(self, name) and not self.trained:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, but trained is false, so nothing is tuned: leave {name} out, "
                    "or set trained to true"
                )
        if self.tasks and self.lines.startswith("medground:"):
            raise ValueError(
                f"tasks is {self.tasks!r}, but lines is {self.lines!r}, whose lines have no task: leave tasks out, or "
                "name a mix of RadVLM, radvlm:<mix>"
            )
        if self.init and self.engine != "onevision_tiny":
            raise ValueError(
                f"init is {self.init!r}, but the engine {self.engine} has no such choice: leave init out, or set "
                "engine to onevision_tiny"
            )


class VlmTuning(Section):
    """Fine-tuning of vision-language models."""

    runs: dict[RunName, Run] = key(
        lambda: {
            "medground": Run(),
            "medground_label_replaced": Run(lines="medground:label_replaced"),
            "radvlm": Run(engine="onevision_tiny", lines="radvlm:all"),
        },
        "Models by name.",
    )
    probed: int = key(200, "Number of validation lines in a probe.", unit="samples", ge=1, le=100_000)
    balance: Literal["none", "domain"] = key(
        "none",
        "none: every sample once per epoch; domain: samples of rarer image domains are repeated until all domains are "
        "equally frequent.",
        source=PAPER,
    )
    nan_limit: int = key(
        10, "Number of steps with a loss or gradient that is not a number, at which a tuning stops.", unit="steps",
        ge=1, le=1_000_000,
    )  # fmt: skip
    seed: int = key(42, "Seed of order, dropout and adapters.", source=PAPER, ge=0)
    qwen25vl: Recipe = key(Recipe, "Qwen2.5-VL and models of its architecture.", source=PAPER)
    qwen3vl: Qwen3Recipe = key(Qwen3Recipe, "Qwen3-VL.", source=PAPER)
    gemma3: Gemma3Recipe = key(Gemma3Recipe, "Gemma 3 and MedGemma.", source=PAPER)
    onevision: OnevisionRecipe = key(OnevisionRecipe, "LLaVA-OneVision and RadVLM.")
    tiny: TinyRecipe = key(TinyRecipe, "A small random model.")
    onevision_tiny: OnevisionTinyRecipe = key(OnevisionTinyRecipe, "A small random LLaVA-OneVision.")

    @constraint
    def _models_are_named(self) -> None:
        for name, run in self.runs.items():
            if run.engine == "onevision" and not run.model:
                self.runs[name] = replace(run, model=self.onevision.model)

    @constraint
    def _runs_have_a_base(self) -> None:
        for name, run in self.runs.items():
            if run.init == "base":
                try:
                    self.onevision_tiny.check_base()
                except ValueError as error:
                    raise ValueError(f"runs.{name}.init is 'base' and onevision_tiny.{error}") from None


class Prediction(Section):
    """Answers of an external model."""

    path: str = key("", "JSON lines of {sample_id, text} or {sample_id, failure}.")
    set: SetName = key("medground_test", "Name of the set in vlm.answers.sets that it was asked.")
    convention: Convention = key("grid1000", "How it writes coordinates.")


class VlmAnswers(Section):
    """Asking vision-language models."""

    engine: Literal["transformers", "vllm"] = key(
        "transformers", "Library that runs the models; vllm is faster, without masks and for fewer models."
    )
    sets: dict[SetName, str] = key(
        lambda: {
            "medground_test": "medground:dataset/test",
            "medground_zero_shot": "medground:dataset/zero_shot",
            "radvlm_test": "radvlm:all/test",
            "radvlm_exchanged": "radvlm:all/exchanged",
        },
        "Lines to ask, by name: medground:<file of its dataset>, radvlm:<mix>/<file>, or a file of lines. Runs on the "
        "lines of a system are asked the sets of that system.",
    )
    most: int = key(
        0,
        "Maximum number of samples per task of a set, selected by the hash of their names; 0: all. Exchanged images "
        "get the same samples; MedGround's queries are one task; pairs of the ILS split are always all asked.",
        unit="samples", ge=0,
    )  # fmt: skip
    max_new_tokens: int = key(
        2048, "Maximum length of an answer (60 boxes: about 1,400); a smaller value in a recipe has priority.",
        unit="tokens",
        ge=1, le=100_000,
    )  # fmt: skip
    max_length: int = key(8192, "Maximum length of a prompt with its image.", unit="tokens", ge=16, le=1_000_000)
    history: Literal["own", "expected"] = key(
        "own", "Earlier answers that a later turn sees: the model's own, or the expected ones.", source=AUTHORS
    )
    predictions: dict[RunName, Prediction] = key(dict, "Answers of external models, by name.")


class Vlm(Section):
    """Vision-language models, of every system."""

    tuning: VlmTuning = key(VlmTuning, "Fine-tuning.")
    answers: VlmAnswers = key(VlmAnswers, "Asking.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names(
            "vlm.tuning.runs and vlm.answers.predictions", [*self.tuning.runs, *self.answers.predictions]
        )
        if shared_names := self.tuning.runs.keys() & self.answers.predictions.keys():
            raise ValueError(f"answers.predictions.{min(shared_names)} has the name of a run of tuning.runs: rename it")
        for name, prediction in self.answers.predictions.items():
            if prediction.set not in self.answers.sets:
                raise ValueError(
                    f"answers.predictions.{name}.set is {prediction.set!r}, no name of answers.sets: add it"
                )
