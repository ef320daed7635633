"""Feature engine xrv: the 1,024 features before the classifier of torchxrayvision's DenseNet-121."""

from collections.abc import Sequence

import numpy as np
import torch
import yaml

from cxr.base.engines import Setup
from cxr.base.paths import RESOURCES
from cxr.nets.densenet import DenseNet121, prepare_frame
from cxr.nets.devices import inference, select_device
from cxr.nets.tensors import load_strict
from cxr.semisyn.realism.engine import Features, digest_of

METRICS = {"frechet": "fid_xrv", "kernel": "kid_xrv"}
INPUTS = {"weights": "results/weights/xrv.safetensors"}
RESOURCE_FILES = ("semisyn/xrv.yaml",)
GPU = True


class XrvFeatures:
    """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""

    def __init__(self, net: DenseNet121, device: torch.device, batch: int, weights: str):
        self.net, self.device, self.weights = net.eval().to(device), device, weights
        self.batch = batch if device.type != "cpu" else 1  # sums must not depend on the other rows

    @inference()
    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""
        inputs = torch.cat([prepare_frame(image) for image in images]).to(self.device)
        return Features(self.net.pool_features(inputs).cpu().numpy())


def load(setup: Setup) -> XrvFeatures:
    """Load the net. Raises UserError for weights that are missing or another net's."""
    outputs = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["outputs"]
    with torch.device("meta"):
        net = DenseNet121(len(outputs))
    load_strict(net, setup.files["weights"])
    device = select_device(setup.device, setup.asked)
    return XrvFeatures(net, device, setup.batch, digest_of(setup.files["weights"]))
