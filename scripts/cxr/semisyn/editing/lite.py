"""Editing engine ``lite``: paints findings on the CPU. Its random draws depend only on a job's seed and prompt."""

import numpy as np

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.base.resources import load_resource
from cxr.base.vocabulary import HEART, LUNGS
from cxr.metrics.edits import cardiothoracic_ratio
from cxr.nets.map_net import MapNet
from cxr.painting.chest import Chest, PaintRequest, Place
from cxr.painting.painters import PAINTERS, region_of
from cxr.semisyn.editing.engine import EditedImage, Job
from cxr.semisyn.findings.catalogue import read_catalogue

RESOURCE_FILES = ("organs/lite.onnx", "semisyn/painters.yaml", "semisyn/priors.yaml", "semisyn/prompts.yaml")


def read_ranges() -> dict:
    """Return the parameters of the painting functions, {function: {name: number, or (low, high) to draw from}}."""
    return load_resource(RESOURCE_FILES[1])


class LiteEditor:
    """Editor that paints findings. ``painters``: {finding: name of its painting function in PAINTERS}."""

    def __init__(self, painters: dict[str, str]):
        self._painters, self._ranges = painters, read_ranges()
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray], job: Job) -> EditedImage:
        """See :class:`cxr.semisyn.editing.engine.EditingEngine`."""
        painter = self._painters[job.finding]
        masks = [organs[name] for name in (*LUNGS, HEART)]
        chest = Chest(image.astype(np.float32) / 255, *masks)
        request = PaintRequest(
            places=tuple(Place(tuple(box), side) for box, side in zip(job.boxes, job.sides, strict=True) if side),
            words=job.prompt,
            ratio=job.ratio,
            ranges=self._ranges.get(painter, {}),
            measure=self._measure_ratio,
        )
        painted = PAINTERS[painter](chest, request, np.random.default_rng(job.seed))
        return EditedImage(painted.image * 255, painted.lesion, region_of(painter, chest, request), painted.parameters)

    def _measure_ratio(self, image: np.ndarray) -> float:
        """Return the cardiothoracic ratio of an image float32 (H, W) in 0..1."""
        masks = self._net.masks(np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8))
        organs = dict(zip(self._net.labels, masks, strict=True))
        return cardiothoracic_ratio(*(organs[name] for name in (HEART, *LUNGS)))


def load(options: object, setup: Setup, prompts: frozenset[str] = frozenset()) -> LiteEditor:
    """Load the engine. Raise UserError for a finding whose painter does not exist."""
    catalogue = read_catalogue(setup.files.get("findings_file") or "")
    painters = {name: catalogue.findings[name].painter for name in options.findings}
    for finding, painter in painters.items():
        if painter not in PAINTERS:
            raise UserError(
                f"semisyn.findings_file gives {finding!r} the painter {painter!r}, which does not exist: "
                f"choose one of {', '.join(PAINTERS)}"
            )
    return LiteEditor(painters)
