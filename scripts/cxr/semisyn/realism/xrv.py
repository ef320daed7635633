"""Feature engine ``xrv``: the 1,024 features before the classifier of torchxrayvision's DenseNet-121."""

from collections.abc import Sequence

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.resources import load_resource
from cxr.nets.densenet import DenseNet121, prepare_frame
from cxr.nets.devices import inference, select_device
from cxr.nets.tensors import load_strict
from cxr.semisyn.realism.engine import FeatureEngine, Features, digest_of

METRICS = {"frechet": "fid_xrv", "kernel": "kid_xrv"}
INPUTS = {"weights": "results/weights/xrv.safetensors"}
RESOURCE_FILES = ("semisyn/xrv.yaml",)
GPU = True


def load(setup: Setup) -> FeatureEngine:
    """Load the net. Raise UserError if its weights are missing or belong to another net."""
    with torch.device("meta"):
        net = DenseNet121(len(load_resource(RESOURCE_FILES[0])["outputs"]))
    load_strict(net, setup.files["weights"])
    device = select_device(setup.device, setup.requested_gpus)
    net = net.eval().to(device)

    @inference()
    def compute(images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        inputs = torch.cat([prepare_frame(image) for image in images]).to(device)
        return Features(net.pool_features(inputs).cpu().numpy())

    # one image at a time on a CPU, so that no sum depends on other images
    return FeatureEngine(compute, digest_of(setup.files["weights"]), setup.batch if device.type != "cpu" else 1)
