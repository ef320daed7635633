"""Settings of the evaluation stage."""

from dataclasses import dataclass
from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, constraint, key
from cxr.ils.settings import RunName

FILE_ADAPTERS = ("jsonl", "text4seg")  # adapters that read one file; the others read a folder


class OutputFormat(Section):
    """Settings that describe the format of another model's outputs."""

    adapter: Literal[
        "jsonl", "png", "lisa", "text4seg", "text4seg_sam", "pixellm", "biomedparse", "reclmis", "imisnet", "everything"
    ] = key("jsonl", "Format of the predictions (docs/systems/evaluation.md). everything: all pixels, without a file.")
    grid: int = key(24, "Rows and columns of Text4Seg's text grid: 24 for p24, 16 for p16.", unit="cells", ge=4, le=128)


class PredictionSettings(OutputFormat):
    """Settings that describe the predictions of another model."""

    path: str = key("", "File (adapters jsonl, text4seg) or folder of the predictions.")
    test: str = key("default", "Threshold set whose test split the model predicted.")


class EvaluationSettings(Section):
    """Settings of the scores of ROSALIA and of other models (Tables 4, 5, 6, 14)."""

    size: int = key(
        1024, "Side of the square to which masks are resized.", unit="pixels", source=AUTHORS, ge=64, le=4096,
        multiple_of=8,
    )  # fmt: skip
    reviewed: str = key(
        "", "Text file with the ids of pairs that reviewers rejected, one per line. They are not scored.", source=PAPER
    )
    predictions: dict[RunName, PredictionSettings] = key(dict, "Predictions of other models, by name.")

    @constraint
    def _predictions_have_a_path(self) -> None:
        for name, prediction in self.predictions.items():
            if not prediction.path and prediction.adapter != "everything":
                raise ValueError(f"predictions.{name}.path is empty: give the file or folder of the predictions")
            if prediction.path and prediction.adapter == "everything":
                raise ValueError(
                    f"predictions.{name}.path is {prediction.path!r}, but `everything` reads no file: remove the path"
                )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Settings that affect a run's scores."""

    size: int
    replicates: int
