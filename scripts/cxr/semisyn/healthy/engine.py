"""The interface of classifiers, by which the healthy pool is screened."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.semisyn.healthy.criteria import Exclusion
from cxr.semisyn.healthy.options import HealthyOptions

ReadFrame = Callable[[], np.ndarray]


class NoScores(Exception):
    """The classifier has no scores of an image; ``exclusion`` says why."""

    def __init__(self, exclusion: Exclusion):
        super().__init__(exclusion)
        self.exclusion = exclusion


class Classifier(Protocol):
    """A source of scores. Its module names the findings that it never sees in ``UNSEEN``."""

    def scores(self, image_id: str, picture: ReadFrame) -> dict[str, float]:
        """Return {finding: score, 0 to 1} of one image, of the findings that it scores.

        ``picture`` returns the frame, uint8 (512, 512). Raises NotScored.
        """
        ...

    def explain_positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """Return what makes an image positive, "" for a negative one. ``ctr``: cardiothoracic ratio, if
        known; ``view``: PA or AP.
        """
        ...


def scores_above(scores: Mapping[str, float], thresholds: Mapping[str, float]) -> str:
    """Return the findings whose scores reach their thresholds, with these, as text."""
    return ", ".join(
        f"{finding} {scores[finding]:.3f} >= {low:g}" for finding, low in thresholds.items() if scores[finding] >= low
    )


def load_classifier(options: HealthyOptions, setup: Setup) -> Classifier:
    """Load the classifier with ``load(options, setup)`` of its module. Raises UserError for one that cannot be used."""
    return engine_module("cxr.semisyn.healthy", options.classifier).load(options, setup)
