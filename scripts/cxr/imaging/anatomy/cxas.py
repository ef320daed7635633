"""The paper's anatomy engine: CXAS, a U-Net on a ResNet-50 that segments 159 structures. The pipeline uses 16 of them.

The net is a class of the package ``cxas`` (0.0.20). The package's loader is not used, because it downloads weights and
skips tensors that do not fit. Frames are normalised as in the package. Source: Seibold et al., arXiv 2306.03934.
"""

import importlib.util
import sys

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.vocabulary import ANATOMY_LABELS
from cxr.imaging.anatomy.settings import AnatomySettings
from cxr.nets.devices import inference, select_device
from cxr.nets.tensors import load_strict

INPUTS = {"weights": "results/weights/cxas.safetensors"}
GPU = True
MODEL = "UNet_ResNet50_default"  # the only published model
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def published_net() -> tuple[torch.nn.Module, list[int]]:
    """Return CXAS without weights (device ``meta``), and the index of the output channel of each of ``ANATOMY_LABELS``.

    Raises UserError if the package ``cxas`` is missing or has no class for one of the labels.
    """
    try:
        if (spec := importlib.util.find_spec("cxas")) is None:
            raise ImportError("no package cxas")
        # Importing the whole package would load all its tools, such as an OpenCV that needs libGL.
        sys.modules.setdefault("cxas", importlib.util.module_from_spec(spec))
        from cxas.label_mapper import id2label_dict
        from cxas.models.UNet.backbone_unet import BackboneUNet
    except ImportError as error:
        raise UserError(
            f"anatomy.engine 'cxas' needs the environment envs/anatomy-cxas.yaml ({error}): run snakemake with "
            "--software-deployment-method conda"
        ) from None
    channels = {name: int(index) for index, name in id2label_dict.items()}
    if unknown := [label for label in ANATOMY_LABELS if label not in channels]:
        raise UserError(f"the package cxas has no class {unknown[0]!r}: install the version of envs/anatomy-cxas.yaml")
    with torch.device("meta"):
        net = BackboneUNet(MODEL, len(channels))
    return net, [channels[label] for label in ANATOMY_LABELS]


def keep_channels(net: torch.nn.Module, channels: list[int]) -> None:
    """Reduce the last layer of ``net`` to the output ``channels``. All 159 channels would take 167 MB per image."""
    full_layer = net.head.out.conv
    net.head.out.conv = torch.nn.Conv2d(full_layer.in_channels, len(channels), kernel_size=1, device="meta")
    weights = {name: value[channels] for name, value in full_layer.state_dict().items()}
    net.head.out.conv.load_state_dict(weights, assign=True)


def normalised(images: list[np.ndarray]) -> torch.Tensor:
    """Convert N frames, uint8 (H, W), to the net's input, float32 (N, 3, H, W)."""
    grey = torch.from_numpy(np.stack(images)[:, None]).float() / 255
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (grey - mean) / deviation


class CxasAnatomy:
    """An engine that segments the heart and the 15 zone labels (lungs, lung zones and lobes) with CXAS."""

    def __init__(self, weights: str, threshold: float, setup: Setup):
        net, channels = published_net()
        load_strict(net, weights)
        keep_channels(net, channels)
        net.threshold = threshold
        self._device = select_device(setup.device, setup.requested_gpus)
        self._net = net.to(self._device).eval()
        # on a CPU, batches are not faster, and the results for single images do not depend on the batch
        self.batch = setup.batch if self._device.type == "cuda" else 1

    def segment_batch(self, images: list[np.ndarray]) -> list[np.ndarray]:
        """Return masks, bool (16, 512, 512), ordered as ``ANATOMY_LABELS``, for each edited frame, uint8 (512, 512)."""
        masks = []
        with inference():
            for first in range(0, len(images), self.batch):
                outputs = self._net({"data": normalised(images[first : first + self.batch]).to(self._device)})
                values = [value for value in outputs.values() if isinstance(value, torch.Tensor)]
                # a threshold would turn NaN into an empty mask
                if any(value.is_floating_point() and not torch.isfinite(value).all() for value in values):
                    raise ArithmeticError("CXAS returned a value that is not finite")
                masks.extend(outputs["segmentation_preds"].cpu().numpy())
        return masks


def load(options: AnatomySettings, setup: Setup) -> CxasAnatomy:
    """Load the engine. Raises UserError if the weights are missing, damaged or those of another net."""
    return CxasAnatomy(setup.files["weights"], options.cxas.threshold, setup)
