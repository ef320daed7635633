"""Feature engine inception (FID, KID): the 2,048 pooled features of the Inception-v3 of 2015, on grey RGB images."""

from collections.abc import Sequence

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.nets.devices import inference, select_device
from cxr.nets.inception import Inception
from cxr.nets.tensors import load_strict
from cxr.semisyn.realism.engine import Features, digest_of

METRICS = {"frechet": "fid", "kernel": "kid"}
INPUTS = {"weights": "results/weights/inception.safetensors"}
GPU = True


class InceptionFeatures:
    """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""

    def __init__(self, net: torch.nn.Module, device: torch.device, batch: int, weights: str):
        self.net, self.device, self.weights = net.eval().to(device), device, weights
        self.batch = batch if device.type != "cpu" else 1  # sums must not depend on the other rows

    @inference()
    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""
        grey = torch.from_numpy(np.stack(images)).to(self.device, torch.float32)
        return Features(self.net(grey[:, None].expand(-1, 3, -1, -1)).cpu().numpy())


def load(setup: Setup) -> InceptionFeatures:
    """Load the net. Raises UserError for weights that are missing or another net's."""
    with torch.device("meta"):
        net = Inception()
    load_strict(net, setup.files["weights"])
    device = select_device(setup.device, setup.asked)
    return InceptionFeatures(net, device, setup.batch, digest_of(setup.files["weights"]))
