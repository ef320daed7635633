"""Settings of vision-language models: tuning them, asking them."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, constraint, key, refuse_equal_names
from cxr.vlm.tuning.settings import RunName, VlmTuning

Convention = Literal["", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]


class Prediction(Section):
    """Answers of an external model."""

    path: str = key("", "JSON lines of {sample_id, text} or {sample_id, failure}.")
    set: RunName = key("medground_test", "Name of the set in vlm.answers.sets that it was asked.")
    convention: Convention = key("grid1000", "How it writes coordinates.")


class VlmAnswers(Section):
    """Asking vision-language models."""

    engine: Literal["transformers", "vllm"] = key("transformers", "vllm is faster, for fewer models, without masks.")
    sets: dict[RunName, str] = key(
        lambda: {
            "medground_test": "medground:dataset/test",
            "medground_zero_shot": "medground:dataset/zero_shot",
            "radvlm_test": "radvlm:all/test",
            "radvlm_exchanged": "radvlm:all/exchanged",
        },
        "Lines to ask runs of the same system: medground:<file of its dataset>, radvlm:<mix>/<file>, or a file.",
    )
    most: int = key(0, "Maximum per task of a set, selected by hash; 0: all.", unit="samples", ge=0)
    max_new_tokens: int = key(2048, "Maximum of an answer; a recipe may have less.", unit="tokens", ge=1, le=100_000)
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
        names = [*self.tuning.runs, *self.answers.predictions]
        refuse_equal_names("vlm.tuning.runs and vlm.answers.predictions", names)
        if shared_names := self.tuning.runs.keys() & self.answers.predictions.keys():
            raise ValueError(f"answers.predictions.{min(shared_names)} has the name of a run of tuning.runs: rename it")
        for name, prediction in self.answers.predictions.items():
            if prediction.set not in self.answers.sets:
                problem = f"answers.predictions.{name}.set is {prediction.set!r}, no name of answers.sets"
                raise ValueError(f"{problem}: add it")
