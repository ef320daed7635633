"""Settings of the inference stage."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, key
from cxr.ils.settings import PromptSettings


class AnswerSettings(Section):
    """Settings that affect the answers and masks of a model."""

    text: bool = key(True, "Whether the model writes answers; false: it only predicts masks, which is much faster.")
    max_new_tokens: int = key(512, "Length at which answers are cut.", unit="tokens", source=AUTHORS, ge=1, le=4096)
    equalise: bool = key(True, "Whether to equalise image histograms, as in the authors' evaluation.", source=AUTHORS)
    size: int = key(1024, "Side of predicted masks.", unit="pixels", source=AUTHORS, ge=64, le=4096, multiple_of=8)


class InferenceSettings(AnswerSettings):
    """Settings of the masks and answers of trained models."""

    split: Literal["train", "validate", "test"] = key("test", "Split whose instructions the model answers.")
    paraphrases: bool = key(
        False, "Whether the model also answers each instruction in one wording of each persona (C.3), for comparison."
    )


class InferenceOptions(PromptSettings, AnswerSettings):
    """Settings that affect a model's answers, and values that the job sets."""

    dtype: str = "float32"
    persona: str = ""  # Persona whose wordings the model receives; empty for the instructions of the dataset
    seed: int = 0  # Seed by which one of the persona's wordings is chosen
