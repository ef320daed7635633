"""Interface of the classifiers that screen the healthy pool, and their loader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.semisyn.healthy.criteria import Exclusion


@dataclass(frozen=True, kw_only=True)
class HealthyOptions:
    """Settings of the stage (section ``semisyn.healthy``).

    views, positions, splits: what is accepted. unknown_position: ``auto``, ``keep`` or ``exclude`` an image that does
    not tell how the patient was positioned. exclude_patients: whether a reference stops all films of its patients, or
    its own images alone. labels: ``chexpert`` or ``reports``. devices: ``not_positive``, ``negative`` or ``any``.
    classifier: an engine of this package; threshold: score from which its other engines call a finding positive; own:
    settings of the engine alone. max_lung_iou: largest IoU of the boxes of both lungs. references: {name: format, path,
    image_id} of the human annotations whose patients are left out.
    """

    views: list[str]
    positions: list[str]
    unknown_position: str
    splits: list[str]
    exclude_patients: bool
    labels: str
    devices: str
    classifier: str
    threshold: float
    max_lung_iou: float = 0.3
    own: dict = field(default_factory=dict)
    references: dict = field(default_factory=dict)


ReadFrame = Callable[[], np.ndarray]


class NoScores(Exception):
    """The classifier has no scores of an image; ``exclusion`` says why."""

    def __init__(self, exclusion: Exclusion):
        super().__init__(exclusion)
        self.exclusion = exclusion


class Classifier(Protocol):
    """A source of scores. Its module lists the findings that it cannot detect in ``UNSEEN``."""

    def scores(self, image_id: str, picture: ReadFrame) -> dict[str, float]:
        """Return {finding: score, 0 to 1} of one image, for the findings that the classifier scores.

        ``picture`` returns the frame, uint8 (512, 512). Raises NoScores.
        """
        ...

    def explain_positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """Return why an image is positive, "" for a negative one. ``ctr``: cardiothoracic ratio or None; ``view``: PA
        or AP.
        """
        ...


def scores_above(scores: Mapping[str, float], thresholds: Mapping[str, float]) -> str:
    """Return as text the findings whose scores reach their thresholds."""
    return ", ".join(
        f"{finding} {scores[finding]:.3f} >= {low:g}" for finding, low in thresholds.items() if scores[finding] >= low
    )


def load_classifier(options: HealthyOptions, setup: Setup) -> Classifier:
    """Load the classifier with ``load(options, setup)`` of its module. Raises UserError for one that cannot be used."""
    return engine_module("cxr.semisyn.healthy", options.classifier).load(options, setup)
