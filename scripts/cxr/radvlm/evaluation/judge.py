"""The interface of judges: modules ``cxr.radvlm.evaluation.judge_<name>`` with ``load``. They score conversations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np

from cxr.base.errors import UserError

JUDGES = ("facts", "vllm")
MAX_SCORE = 10.0
UNSCORED = "unscored"


@dataclass(frozen=True)
class Round:
    """A question, the right answer, and the one that is judged; boxes of both, float64 (N, 4), fractions."""

    question: str
    expected: str
    generated: str
    expected_boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    generated_boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))


@dataclass(frozen=True)
class Item:
    """A conversation to judge; name: unique, and told to no judge; facts: texts that its right answers rest on."""

    name: str
    rounds: tuple[Round, ...]
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """score: 0 to 10, None if there is none, with its problem; rounds: what the judge says of each; raw: its answer."""

    score: float | None
    rounds: tuple[Mapping, ...] = ()
    problem: str = ""
    raw: str = ""


Judge = Callable[[Sequence[Item]], list[Judgement]]
"""Takes conversations; returns one judgement each, in order. No judgement depends on another conversation."""


@dataclass(frozen=True)
class JudgeOptions:
    """judge: its name; own: settings of its language model, empty for facts; iou: of a box that is right."""

    judge: str
    own: Mapping
    iou: float


def load_judge(options: JudgeOptions, execution: Mapping) -> Judge:
    """Return the judge of the options. ``execution``: how a model is run. Raises UserError for an unknown name."""
    if options.judge not in JUDGES:
        raise UserError(f"radvlm.evaluation.judge is {options.judge!r}: choose one of {', '.join(JUDGES)}")
    return import_module(f"cxr.radvlm.evaluation.judge_{options.judge}").load(options, execution)
