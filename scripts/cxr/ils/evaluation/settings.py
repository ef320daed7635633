"""Settings of the evaluation stage."""

from dataclasses import dataclass
from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, constraint, key
from cxr.ils.settings import RunName

FILE_ADAPTERS = ("jsonl", "text4seg")  # adapters that read one file; the others read a folder


class OutputFormat(Section):
    """Format of another model's outputs."""

    adapter: Literal[
        "jsonl", "png", "lisa", "text4seg", "text4seg_sam", "pixellm", "biomedparse", "reclmis", "imisnet", "everything"
    ] = key("jsonl", "Format of the predictions (docs/systems/evaluation.md); everything: a mask of the whole image.")
    grid: int = key(24, "Side of Text4Seg's text grid: 24 for its model p24, 16 for p16.", unit="cells", ge=4, le=128)


class PredictionSettings(OutputFormat):
    """Predictions of another model."""

    path: str = key("", "File or folder of the predictions.")
    test: str = key("default", "Threshold set on whose dataset the predictions were made.")


class EvaluationSettings(Section):
    """Scores of ROSALIA and of other models (Tables 4, 5, 6, 14)."""

    size: int = key(
        1024, "Side of the square in which masks are compared.", unit="pixels", source=AUTHORS, ge=64, le=4096,
        multiple_of=8,
    )  # fmt: skip
    reviewed: str = key("", "Text file of the ids of pairs that reviewers rejected; they are not scored.", source=PAPER)
    predictions: dict[RunName, PredictionSettings] = key(dict, "Predictions of other models, by name.")

    @constraint
    def _predictions_have_a_path(self) -> None:
        for name, prediction in self.predictions.items():
            if not prediction.path and prediction.adapter != "everything":
                raise ValueError(f"predictions.{name}.path is empty: give the file or folder of the predictions")
            if prediction.path and prediction.adapter == "everything":
                raise ValueError(
                    f"predictions.{name}.path is {prediction.path!r}, but everything reads none: leave it out"
                )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Settings that affect a run's scores."""

    size: int
    replicates: int
