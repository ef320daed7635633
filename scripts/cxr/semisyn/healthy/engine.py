"""Interface of the classifiers that screen the healthy pool, and their loader."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.semisyn.healthy.criteria import Exclusion
from cxr.semisyn.healthy.settings import HealthySettings

ReadFrame = Callable[[], np.ndarray]


class NoScores(Exception):
    """The classifier has no scores of an image; ``exclusion`` says why."""

    def __init__(self, exclusion: Exclusion):
        super().__init__(exclusion)
        self.exclusion = exclusion


class Classifier(ABC):
    """A source of scores. Its module lists the findings that it cannot detect in ``UNSEEN``."""

    thresholds: Mapping[str, float]
    """{finding: score from which an image is positive}."""

    @abstractmethod
    def scores(self, image_id: str, picture: ReadFrame) -> dict[str, float]:
        """Return {finding: score, 0 to 1} of one image, for the findings that the classifier scores.

        ``picture`` returns the frame, uint8 (512, 512). Raises NoScores.
        """

    def explain_positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """Return why an image is positive, "" for a negative one. ``ctr``: cardiothoracic ratio or None; ``view``: PA
        or AP.
        """
        positive = [(finding, low) for finding, low in self.thresholds.items() if scores[finding] >= low]
        return ", ".join(f"{finding} {scores[finding]:.3f} >= {low:g}" for finding, low in positive)


def load_classifier(options: HealthySettings, setup: Setup) -> Classifier:
    """Load the classifier with ``load(options, setup)`` of its module. Raises UserError for one that cannot be used."""
    return engine_module("cxr.semisyn.healthy", options.classifier).load(options, setup)
