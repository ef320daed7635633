"""The interface of detectors, and loading a detector by name."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.vocabulary import BOX_CLASSES
from cxr.imaging.boxes.settings import BoxesSettings

VINBIGDATA_NAMES = {
    "atelectasis": "Atelectasis", "cardiomegaly": "Cardiomegaly", "consolidation": "Consolidation", "edema": "",
    "opacity": "Lung Opacity", "effusion": "Pleural effusion", "pneumothorax": "Pneumothorax",
}  # fmt: skip
"""{finding that our detectors are trained on: VinBigData's class}; edema has "", because VinBigData lacks it."""


class Detections(NamedTuple):
    """The N boxes of an image: float64 (N, 4: x1, y1, x2, y2) in frame pixels, confidences (N,) and N class names."""

    boxes: np.ndarray
    confidence: np.ndarray
    class_names: list[str]


class BoxEngine(Protocol):
    """A detector of ``class_names``. ``image_ids``: images in its table of boxes, None if it has no table."""

    class_names: tuple[str, ...]
    image_ids: frozenset[str] | None

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """Return the boxes of one frame, most confident first.

        ``image``: uint8 (512, 512); ``image_id``: key of the image in a table of boxes; ``to_original``: affine (2, 3)
        from the frame to the original image. Several threads call this method at once.

        An engine with a large net instead has an attribute ``batch``, the batch size, and a method
        ``detect_batch(images)``, which returns the boxes of a list of frames and is called from one thread.
        """


def map_class_names(classes: Sequence[str], renamed: Mapping[str, str], path: object) -> tuple[str, ...]:
    """Return VinBigData's name for each of ``classes``, or "" for a class to drop. ``path``: the detector's file.

    ``renamed``, {class: name}, takes precedence over :data:`VINBIGDATA_NAMES`. Raises UserError for an unknown class.
    """
    if strange := sorted(renamed.keys() - set(classes)):
        raise UserError(
            f"boxes.class_names holds {strange[0]!r}, which is no class of {path}: choose among {', '.join(classes)}"
        )
    vocabulary_names = tuple((VINBIGDATA_NAMES | dict(renamed)).get(name, name) for name in classes)
    for name in vocabulary_names:
        if name and name not in BOX_CLASSES:
            raise UserError(
                f"{path} has a class {name!r}, which is not a VinBigData class: map it in boxes.class_names to "
                f"a VinBigData class, or to '' to exclude it; the classes are {', '.join(BOX_CLASSES)}"
            )
    return vocabulary_names


def load_engine(options: BoxesSettings, setup: Setup | None = None) -> BoxEngine:
    """Load the engine ``options.engine``: call ``load(options, setup)`` of the module ``cxr.imaging.boxes.<name>``.

    Raises UserError for an unknown engine, or if the engine lacks a class of ``excluded_classes``.
    """
    engine = engine_module("cxr.imaging.boxes", options.engine).load(options, setup or Setup())
    for name in options.excluded_classes:
        if name not in engine.class_names:
            raise UserError(f"boxes.excluded_classes holds {name!r}: choose among {', '.join(engine.class_names)}")
    return engine
