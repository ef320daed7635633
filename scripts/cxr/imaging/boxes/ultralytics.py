"""Any ultralytics detector (YOLO v8 and later, YOLOv5u) for VinBigData's classes.

The package has the AGPL licence, so only this module imports it, in a separate environment. Non-maximum suppression is
our own code, per class. As in the package's validation, a box counts for each class that reaches ``boxes.floor``.
"""

import os
import tempfile
from types import ModuleType

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.faults import is_not_from_input
from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection import proposals
from cxr.imaging.boxes import nets
from cxr.imaging.boxes.engine import Detections
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.nets import tensors
from cxr.nets.devices import inference, select_device

GPU = True
INPUTS = {"weights": "results/weights/ultralytics.safetensors"}
"""The weights file. It is converted from the checkpoint (cxr.imaging.weights.yolo), so this module reads no pickle."""

QUIET = {"ULTRALYTICS_SAFE_LOAD": "true", "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
"""Environment variables with which the package stays offline and builds nets from lists of layers, never from code."""


def import_package() -> ModuleType:
    """Import the package's nets, offline and with default settings. Raises ImportError if it is not installed."""
    os.environ |= QUIET
    with tempfile.TemporaryDirectory() as folder:
        os.environ["YOLO_CONFIG_DIR"] = folder  # the package writes settings when it is imported
        from ultralytics.nn import tasks
    return tasks


def build_net(
    weights: dict[str, torch.Tensor], facts: dict, path: str, network: str = "DetectionModel"
) -> torch.nn.Module:
    """Build a net of the package's class ``network`` from the list of layers in ``facts``, or raise UserError."""
    network_class = getattr(import_package(), network)
    try:
        plan = facts["yaml"]
        channels = plan.get("channels", plan.get("ch", 3))
        if channels not in (1, 3):
            raise ValueError(f"{channels} input channels, not 1 or 3")
        net = network_class(plan, ch=channels, verbose=False)
        if len(facts["names"]) != net.model[-1].nc:
            raise ValueError(f"{len(facts['names'])} class names for {net.model[-1].nc} classes")
        eps = facts["eps"]
    except Exception as error:  # the package raises many kinds of errors for an invalid plan
        if is_not_from_input(error):
            raise
        tensors.refuse_weights(path, f"holds a plan of layers that cannot be built ({' '.join(str(error).split())})")
    tensors.fill_net(net, weights, path)
    nets.set_eps(net, eps, path)
    return net


class UltralyticsEngine:
    """An engine that detects boxes with one ultralytics checkpoint."""

    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, options: BoxesSettings, setup: Setup):
        self.options, self.batch = options, setup.batch
        self.size = options.ultralytics.image_size
        path = setup.files["weights"]
        weights, facts = tensors.read_weights(path, "ultralytics")
        self.device = select_device(setup.device, setup.requested_gpus)
        self.net = build_net(weights, facts, path).to(self.device).eval()
        self.classes = nets.class_indices(facts["names"], options.class_names, path)
        self.channels = self.net.yaml["channels"]
        largest = int(self.net.stride.max())
        if self.size % largest:
            raise UserError(f"boxes.ultralytics.image_size is {self.size}: choose a multiple of {largest}")

    @inference()
    def detect_batch(self, images: list[np.ndarray]) -> list[Detections]:
        """Return the boxes of each frame; see :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        squares = [proposals.resize_square(image, self.size) for image in images]
        side, options, detections = images[0].shape[0], self.options, []
        for part in proposals.split_batch(proposals.stack_input(squares, self.channels, self.device)):
            for boxes, scores in self._boxes(part):
                above = proposals.boxes_above(boxes, scores, self.classes, options.floor)
                thinned = proposals.apply_nms(above, options.nms_iou, options.max_boxes)
                detections.append(nets.make_detections(proposals.to_frame_pixels(thinned, side / self.size, 0, side)))
        return detections

    def _boxes(self, images: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        raw = self.net(images)[0]
        centre, size, scores = raw.transpose(1, 2).split((2, 2, len(self.classes)), dim=2)
        return list(zip(torch.cat((centre - size / 2, centre + size / 2), dim=2), scores, strict=True))


def load(options: BoxesSettings, setup: Setup) -> UltralyticsEngine:
    """Load the engine. Raises UserError if its weights are missing or invalid."""
    return UltralyticsEngine(options, setup)
