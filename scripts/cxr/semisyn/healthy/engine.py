"""The interface of classifiers, by which the healthy pool is screened."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.semisyn.healthy.options import HealthyOptions
from cxr.semisyn.healthy.stop import Stop

Picture = Callable[[], np.ndarray]


class NotScored(Exception):
    """The classifier has no scores of an image; ``stop`` says why."""

    def __init__(self, stop: Stop):
        super().__init__(stop)
        self.stop = stop


class Classifier(Protocol):
    """A source of scores. Its module names the findings that it never sees in ``UNSEEN``."""

    def scores(self, image_id: str, picture: Picture) -> dict[str, float]:
        """Return {finding: score, 0 to 1} of one image, of the findings that it scores.

        ``picture`` returns the frame, uint8 (512, 512). Raises NotScored.
        """
        ...

    def positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """Return what makes an image positive, "" for a negative one. ``ctr``: cardiothoracic ratio, if
        known; ``view``: PA or AP.
        """
        ...


def over(scores: Mapping[str, float], thresholds: Mapping[str, float]) -> str:
    """Return the findings whose scores reach their thresholds, with these, as text."""
    return ", ".join(
        f"{finding} {scores[finding]:.3f} >= {low:g}" for finding, low in thresholds.items() if scores[finding] >= low
    )


def load_classifier(options: HealthyOptions, setup: Setup) -> Classifier:
    """Load the classifier with ``load(options, setup)`` of its module. Raises UserError for one that cannot be used."""
    return engine_module("cxr.semisyn.healthy", options.classifier).load(options, setup)
