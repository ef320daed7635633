"""The interface of anatomy engines, and loading one by its name."""

from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.imaging.anatomy.settings import AnatomySettings


class AnatomyEngine(Protocol):
    """A source of the 15 zone labels and the heart."""

    def segment(self, image: np.ndarray) -> np.ndarray:
        """Return bool (16, 512, 512) masks, in the order of ``labels.ANATOMY_LABELS``, of an edited frame.

        The mask of a label that is not found is empty. It is called from several threads at once.

        An engine with a large net has ``segment_batch(images)`` instead, with lists as argument and result, and the
        attribute ``batch``, the batch size. It is called from one thread.
        """
        ...


def load_engine(name: str, options: AnatomySettings, setup: Setup | None = None) -> AnatomyEngine:
    """Load an engine with the function ``load(options, setup)`` of the module ``cxr.imaging.anatomy.<name>``.

    Raises UserError for an unknown name.
    """
    return engine_module("cxr.imaging.anatomy", name).load(options, setup or Setup())
