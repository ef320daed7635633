"""The public detector for VinBigData: five ScaledYOLOv4-P6 nets, one per fold, merged by non-maximum suppression.

The IoU thresholds are :data:`FOLD_IOU` within each fold and :data:`ENSEMBLE_IOU` over all folds; ``boxes.nms_iou`` is
ignored. Source: Beaver48/kaggle-vinbigdata (MIT). The net is our own code.
"""

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.faults import is_not_from_input
from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection import proposals
from cxr.detection.proposals import ScoredBoxes
from cxr.imaging.boxes import nets
from cxr.imaging.boxes.engine import Detections
from cxr.imaging.boxes.scaled_yolov4.network import Network
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.nets import tensors
from cxr.nets.devices import inference, select_device

GPU = True
INPUTS = {
    "fold0": "results/weights/scaled_yolov4/fold0.safetensors",
    "fold1": "results/weights/scaled_yolov4/fold1.safetensors",
    "fold2": "results/weights/scaled_yolov4/fold2.safetensors",
    "fold3": "results/weights/scaled_yolov4/fold3.safetensors",
    "fold4": "results/weights/scaled_yolov4/fold4.safetensors",
}
PUBLISHED = (
    "Cardiomegaly", "Aortic enlargement", "Pleural thickening", "ILD", "Nodule/Mass", "Pulmonary fibrosis",
    "Lung Opacity", "Atelectasis", "Other lesion", "Infiltration", "Pleural effusion", "Calcification",
    "Consolidation", "Pneumothorax",
)  # fmt: skip
"""Class names of the published checkpoints, in order. They are used for a checkpoint without class names."""
IMAGE_SIZE, BORDER = 1024, 32  # side of the scaled frame and width of the border, pixels, as in the public code
GREY = 114  # grey level of the border
FOLD_IOU, ENSEMBLE_IOU = 0.65, 0.5  # NMS thresholds within a fold and over all folds; the weaker box is dropped
MAX_BOXES_PER_FOLD = 300  # maximum number of boxes per image and fold, as in the public evaluation


def number_type(device: torch.device) -> torch.dtype:
    """Return the dtype of the convolutions: half precision on GPUs, as in the public code, otherwise float32."""
    return torch.float16 if device.type == "cuda" else torch.float32


def build_fold(path: str, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Network, np.ndarray]:
    """Return the net of one fold, and the index in ``BOX_CLASSES`` of each class of the net.

    ``dtype``: dtype of the convolutions. Normalisation and boxes stay in float32, because in half precision a
    coordinate of 1000 pixels has a resolution of 0.5. Raises UserError if the file ``path`` contains another net.
    """
    weights, facts = tensors.read_weights(path, "scaled_yolov4")
    try:
        with torch.device("meta"):  # no memory for random weights
            net = Network(facts["yaml"], facts["stride"])
        names = list(PUBLISHED) if facts["names"] is None else facts["names"]
        if len(names) != net.classes:
            raise ValueError(f"{len(names)} class names for {net.classes} classes")
        eps = facts["eps"]
    except (ValueError, LookupError, TypeError, ArithmeticError, RuntimeError) as error:
        if is_not_from_input(error):
            raise
        tensors.refuse_weights(path, f"holds a plan of layers that cannot be built ({error})")
    tensors.fill_net(net, weights, path)
    nets.set_eps(net, eps, path)
    for layer in net.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.to(dtype)
    return net.to(device).eval(), nets.class_indices(names, {}, path)


class ScaledYolov4Engine:
    """The ensemble of five nets. All stay in the memory of the device; the published nets take 2.5 GB."""

    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, options: BoxesSettings, setup: Setup):
        self.options, self.batch = options, setup.batch
        self.device = select_device(setup.device, setup.requested_gpus)
        self.dtype = number_type(self.device)
        self.folds = [build_fold(setup.files[name], self.device, self.dtype) for name in INPUTS]

    def prepare_image(self, frame: np.ndarray) -> np.ndarray:
        """Convert a frame, uint8 (H, H), to the nets' input: scale it to 1024 px and add a grey border."""
        return np.pad(proposals.resize_square(frame, IMAGE_SIZE), BORDER, constant_values=GREY)

    @inference()
    def detect_batch(self, images: list[np.ndarray]) -> list[Detections]:
        """Return the boxes of each frame; see :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        batch = proposals.stack_input([self.prepare_image(image) for image in images], 3, self.device).to(self.dtype)
        folds = [self._fold(net, classes, batch, images[0].shape[0]) for net, classes in self.folds]
        joined = [ScoredBoxes(*map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*folds, strict=True)]
        most = self.options.max_boxes
        return [nets.make_detections(proposals.apply_nms(boxes, ENSEMBLE_IOU, most)) for boxes in joined]

    def _fold(self, net: Network, classes: np.ndarray, batch: torch.Tensor, side: int) -> list[ScoredBoxes]:
        fold_proposals = []
        for part in proposals.split_batch(batch):
            for boxes, scores in zip(*net(part), strict=True):
                above = proposals.boxes_above(boxes, scores, classes, self.options.floor)
                thinned = proposals.apply_nms(above, FOLD_IOU, MAX_BOXES_PER_FOLD)
                fold_proposals.append(proposals.to_frame_pixels(thinned, side / IMAGE_SIZE, BORDER, side))
        return fold_proposals


def load(options: BoxesSettings, setup: Setup) -> ScaledYolov4Engine:
    """Load the engine. Raises UserError if its weights are missing or invalid."""
    return ScaledYolov4Engine(options, setup)
