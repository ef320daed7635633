"""The interface of detectors, and loading one by its name."""

from typing import NamedTuple, Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.imaging.boxes.settings import BoxesSettings


class Detections(NamedTuple):
    """Boxes of one image: float64 (N, 4: x1, y1, x2, y2) in frame pixels, confidences (N,), class names (N)."""

    boxes: np.ndarray
    confidence: np.ndarray
    class_names: list[str]


class BoxEngine(Protocol):
    """A source of boxes.

    ``class_names``: all class names that it may return; ``image_ids``: all images that it has boxes for, None for any.
    """

    class_names: tuple[str, ...]
    image_ids: frozenset[str] | None

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """Return the boxes of one frame, best first.

        ``image``: uint8 (512, 512); ``to_original``: the frame-to-original affine (2, 3). It is called from several
        threads at once.

        An engine with a large net has ``detect_batch(images)`` instead, with lists as argument and result, and the
        attribute ``batch``, the batch size. It is called from one thread.
        """
        ...


def load_engine(options: BoxesSettings, setup: Setup | None = None) -> BoxEngine:
    """Load the engine ``options.engine`` with ``load(options, setup)`` of the module ``cxr.imaging.boxes.<name>``.

    Raises UserError for an unknown engine, or for an excluded class that the engine does not have.
    """
    engine = engine_module("cxr.imaging.boxes", options.engine).load(options, setup or Setup())
    for name in options.excluded_classes:
        if name not in engine.class_names:
            raise UserError(
                f"boxes.excluded_classes holds {name!r}, which {options.engine} does not know: "
                f"choose among {', '.join(engine.class_names)}"
            )
    return engine
