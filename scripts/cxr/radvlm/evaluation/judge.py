"""The interface of judges, which score conversations. A judge is a module ``judge_<name>`` with a function ``load``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np

MAX_SCORE = 10.0
UNSCORED = "unscored"


@dataclass(frozen=True)
class Round:
    """A question with its expected and generated answer. Boxes are fractions of the image, float64 (N, 4)."""

    question: str
    expected: str
    generated: str
    expected_boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    generated_boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))


@dataclass(frozen=True)
class Item:
    """A conversation to judge."""

    name: str  # unique id, which judges do not see
    rounds: tuple[Round, ...]
    facts: tuple[str, ...] = ()  # texts that support the expected answers


@dataclass(frozen=True)
class Judgement:
    """The result for one conversation."""

    score: float | None  # 0 to 10; None if there is a problem
    rounds: tuple[Mapping, ...] = ()  # scores of each round
    problem: str = ""
    raw: str = ""  # reply of the model, if there is a problem


Judge = Callable[[Sequence[Item]], list[Judgement]]  # judges each conversation alone, in order


def load_judge(name: str, model_options: Mapping, execution: Mapping) -> Judge:
    """Load a judge. ``model_options``: for its language model ({} for ``facts``); ``execution``: how the model runs."""
    return import_module(f"cxr.radvlm.evaluation.judge_{name}").load(model_options, execution)
