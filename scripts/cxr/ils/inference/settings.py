"""Settings of the inference stage."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, key
from cxr.ils.settings import PromptSettings


class AnswerSettings(Section):
    """Outputs of a model."""

    text: bool = key(True, "Whether to generate the text of answers; masks alone are much faster.")
    max_new_tokens: int = key(512, "Maximum length of an answer.", unit="tokens", source=AUTHORS, ge=1, le=4096)
    equalise: bool = key(True, "Whether to equalise image histograms, as in the authors' evaluation.", source=AUTHORS)
    size: int = key(1024, "Side of the masks.", unit="pixels", source=AUTHORS, ge=64, le=4096, multiple_of=8)


class InferenceSettings(AnswerSettings):
    """Masks and answers of a trained model."""

    split: Literal["train", "validate", "test"] = key("test", "Split whose instructions the model answers.")
    paraphrases: bool = key(
        False, "Whether each instruction is also given in one wording of each persona (C.3), to compare the scores."
    )


class InferenceOptions(PromptSettings, AnswerSettings):
    """Options of a model's answers: the settings, and values of the run and the job."""

    dtype: str = "float32"
    persona: str = ""  # persona whose wordings the model receives; "" for the plain instructions
    seed: int = 0  # Seed of the choice among a persona's wordings
