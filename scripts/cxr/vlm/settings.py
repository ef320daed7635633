"""Settings of vision-language models: tuning and answers."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, constraint, key, refuse_equal_names
from cxr.vlm.tuning.settings import RunName, VlmTuning

Convention = Literal["", "grid1000", "pixels_resized", "unit", "unit_short", "yx1000"]


class Prediction(Section):
    """Answers of an external model."""

    path: str = key("", "File of the answers, JSON Lines of {sample_id, text} or {sample_id, failure}.")
    set: RunName = key("medground_test", "Name in vlm.answers.sets of the test set that the model answered.")
    convention: Convention = key("grid1000", "Format of box coordinates in the answers.")


class VlmAnswers(Section):
    """Answers of vision-language models."""

    engine: Literal["transformers", "vllm"] = key(
        "transformers", "Library that runs the models; vllm is faster, but supports fewer models, and no masks."
    )
    sets: dict[RunName, str] = key(
        lambda: {
            "medground_test": "medground:dataset/test",
            "medground_zero_shot": "medground:dataset/zero_shot",
            "radvlm_test": "radvlm:all/test",
            "radvlm_exchanged": "radvlm:all/exchanged",
        },
        "Test sets by name: medground:<file>, radvlm:<mix>/<file>, or a path. A run on medground samples answers "
        "medground sets and paths, a run on radvlm samples radvlm sets and paths.",
    )
    most: int = key(0, "Maximum number of samples per task to ask, drawn by a hash; 0: all.", unit="samples", ge=0)
    max_new_tokens: int = key(
        2048, "Maximum answer length. The settings of a run may lower it.", unit="tokens", ge=1, le=100_000
    )
    max_length: int = key(8192, "Maximum length of a prompt; longer prompts fail.", unit="tokens", ge=16, le=1_000_000)
    history: Literal["own", "expected"] = key(
        "own", "Earlier answers that a later turn sees. own: the model's; expected: the ground truth.", source=AUTHORS
    )
    predictions: dict[RunName, Prediction] = key(dict, "Answers of external models by name.")


class Vlm(Section):
    """Vision-language models, for the samples of MedGround and RadVLM."""

    tuning: VlmTuning = key(VlmTuning, "Fine-tuning.")
    answers: VlmAnswers = key(VlmAnswers, "Answers of the models.")

    @constraint
    def _names_are_apart(self) -> None:
        names = [*self.tuning.runs, *self.answers.predictions]
        refuse_equal_names("vlm.tuning.runs and vlm.answers.predictions", names)
        if shared_names := self.tuning.runs.keys() & self.answers.predictions.keys():
            raise ValueError(f"answers.predictions.{min(shared_names)} has the name of a run in tuning.runs: rename it")
        for name, prediction in self.answers.predictions.items():
            if prediction.set not in self.answers.sets:
                problem = f"answers.predictions.{name}.set is {prediction.set!r}, which is not in answers.sets"
                raise ValueError(f"{problem}: add the set there")
