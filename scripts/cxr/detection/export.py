"""Export of a trained detector and its calibration to a weights file; needs the packages onnx and onnxruntime."""

from pathlib import Path

import numpy as np
import torch

from cxr.detection.net import Detector
from cxr.detection.training import copy_net
from cxr.detection.weights import Card


def export_onnx(net: Detector, slope: np.ndarray, offset: np.ndarray, path: Path, licence: str) -> None:
    """Write the net as ONNX (opset 17, float32) to ``path``, with its classes and ``licence`` as metadata.

    ``slope`` and ``offset`` (classes,) calibrate the logit of each class: slope * logit + offset.
    """
    import onnx

    size = net.grid.size
    net = copy_net(net).eval().to(memory_format=torch.contiguous_format)
    net.slope.copy_(torch.from_numpy(slope))
    net.offset.copy_(torch.from_numpy(offset))
    names = {"input_names": ["image"], "output_names": ["logit", "distance"]}
    torch.onnx.export(net, torch.zeros(1, 1, size, size), str(path), opset_version=17, dynamo=False, **names)
    model = onnx.load(str(path))
    for key, value in Card(net.grid, licence).notes().items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, str(path))
