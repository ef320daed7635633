"""Converting pickled YOLO detectors (ultralytics and ScaledYOLOv4) to safetensors, without importing their packages."""

from pathlib import Path

import torch

from cxr.imaging.weights import pickles
from cxr.imaging.weights.pickles import Stub, named_modules, refuse
from cxr.nets import tensors

NETWORK = "ultralytics.nn.tasks.DetectionModel"
ACTIVATIONS = {"Mish", "MishCuda"}  # activations of ScaledYOLOv4; both are Mish, MishCuda is from a GPU package


def convert_ultralytics(source: Path, target: Path) -> dict:
    """Convert an ultralytics detector to safetensors; return numbers of tensors and values, the class names and the
    version. Raises UserError for another detector."""
    root = pickles.read_checkpoint(source)
    network = pickles.find_network(source, root)
    if network.kind != NETWORK:
        refuse(source, f"it contains {network.kind}, not an ultralytics detector (v8 or later, or YOLOv5u)")
    facts = _net_facts(source, network, "ultralytics") | {"version": str(root.get("version", ""))}
    return _write_network(source, target, network, facts) | {name: facts[name] for name in ("names", "version")}


def convert_scaled_yolov4(source: Path, target: Path) -> dict:
    """Convert a fold of the VinBigData ensemble to safetensors; return numbers of tensors and values, and the class
    names. Raises UserError for another detector."""
    network = pickles.find_network(source, pickles.read_checkpoint(source))
    model = network.children.get("model")
    layers = [layer for layer in model.children.values() if isinstance(layer, Stub)] if isinstance(model, Stub) else []
    if not layers or layers[-1].name != "Detect" or "anchor_grid" not in (layers[-1].state.get("_buffers") or {}):
        refuse(source, f"it contains {network.kind}, not a ScaledYOLOv4 detector")
    facts = _net_facts(source, network, "scaled_yolov4")  # first, because it refuses cyclic modules
    activations = {module.name for path, module in named_modules(network) if path.endswith(".act")}
    if not activations <= ACTIVATIONS:
        refuse(source, f"its net uses {', '.join(sorted(activations - ACTIVATIONS))} where ScaledYOLOv4 has Mish")
    return _write_network(source, target, network, facts) | {"names": facts["names"]}


def _write_network(source: Path, target: Path, network: Stub, facts: dict) -> dict[str, int]:
    state = pickles.read_state(source, network)
    return tensors.write_weights(target, tensors.tensor_kinds(state), state.__getitem__, facts)


def _net_facts(source: Path, network: Stub, kind: str) -> dict:
    """Return facts to rebuild a net: ``kind``, plan, class names or None, strides, epsilon of batch normalisations."""
    try:
        names, stride = to_json_value(network.state.get("names")), network.state["stride"]
        norms = {module.state["eps"] for _, module in named_modules(network) if module.name == "BatchNorm2d"}
        if len(norms) != 1:
            raise ValueError("its batch norms have different eps" if norms else "its batch norms were fused away")
        return {
            "kind": kind,
            "yaml": to_json_value(network.state["yaml"]),
            "names": [names[str(index)] for index in range(len(names))] if isinstance(names, dict) else names,
            "stride": [float(step) for step in (stride.tolist() if isinstance(stride, torch.Tensor) else stride)],
            "eps": float(norms.pop()),
        }
    except (KeyError, TypeError, ValueError) as error:
        refuse(source, f"its net cannot be rebuilt ({error})")


def to_json_value(value: object) -> object:
    """Convert a setting in a checkpoint to a JSON value. Raises ValueError for a value that JSON cannot represent."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    kind = value.kind if isinstance(value, Stub) else type(value).__name__
    raise ValueError(f"it holds {kind} where a plain value belongs")
