"""Settings of asking vision-language models."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, Limits, Section, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
SetName = RunName
Convention = Literal["", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]


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
        "Lines to ask runs of the same system: medground:<file of its dataset>, radvlm:<mix>/<file>, or a file.",
    )
    most: int = key(
        0, "Maximum samples per task of a set, selected by a hash of their names; 0: all.", unit="samples", ge=0
    )
    max_new_tokens: int = key(
        2048, "Maximum length of an answer; a recipe may have less.", unit="tokens", ge=1, le=100_000
    )
    max_length: int = key(8192, "Maximum length of a prompt with its image.", unit="tokens", ge=16, le=1_000_000)
    history: Literal["own", "expected"] = key(
        "own", "Earlier answers that a later turn sees: the model's own, or the expected ones.", source=AUTHORS
    )
    predictions: dict[RunName, Prediction] = key(dict, "Answers of external models, by name.")
