"""Classifier ``xrv``: the DenseNet-121 of torchxrayvision, trained on all of its datasets."""

from collections.abc import Mapping

import torch

from cxr.base.engines import Setup
from cxr.base.resources import load_resource
from cxr.nets.densenet import DenseNet121, normalise_scores, prepare_frame
from cxr.nets.tensors import load_strict
from cxr.semisyn.healthy.engine import Classifier, ReadFrame
from cxr.semisyn.healthy.settings import HealthySettings

INPUTS = {"weights": "results/weights/xrv.safetensors"}
RESOURCE_FILES = ("semisyn/xrv.yaml",)


class XrvClassifier(Classifier):
    """Classifier whose scores are scaled so that the operating point of each finding is 0.5."""

    def __init__(self, net: DenseNet121, outputs: Mapping[str, Mapping], threshold: float):
        self.net = net.eval()
        self.points = torch.tensor([output["point"] for output in outputs.values()])
        self.places = {output["finding"]: place for place, output in enumerate(outputs.values()) if "finding" in output}
        self.thresholds = dict.fromkeys(self.places, threshold)

    def scores(self, image_id: str, read_frame: ReadFrame) -> dict[str, float]:
        """See :class:`cxr.semisyn.healthy.engine.Classifier`."""
        with torch.inference_mode():
            scores = normalise_scores(torch.sigmoid(self.net(prepare_frame(read_frame()))), self.points)[0]
        return {finding: float(scores[place]) for finding, place in self.places.items()}


def load(options: HealthySettings, setup: Setup) -> XrvClassifier:
    """Load the net. Raise UserError if its weights are missing or belong to another net."""
    outputs = load_resource(RESOURCE_FILES[0])["outputs"]
    with torch.device("meta"):
        net = DenseNet121(len(outputs))
    load_strict(net, setup.files["weights"])
    return XrvClassifier(net, outputs, options.threshold)
