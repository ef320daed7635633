"""Settings of vision-language models: tuning them, asking them."""

from cxr.base.settings import Section, constraint, key, refuse_equal_names
from cxr.vlm.answers.settings import VlmAnswers
from cxr.vlm.tuning.settings import VlmTuning


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
