"""Converting detectors of both YOLO families, pickled nets that hold their own plans, without their packages."""

from pathlib import Path

from cxr.imaging.weights import pickles
from cxr.imaging.weights.pickles import Saved, named_modules, refuse, to_json_value
from cxr.imaging.weights.stubs import Array, Stub

NETWORK = "ultralytics.nn.tasks.DetectionModel"
ACTIVATIONS = {"Mish", "MishCuda"}
"""Activations of ScaledYOLOv4. Both compute the same; the second is a package for GPUs."""


def convert_ultralytics(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its facts.

    Raises UserError if it is not a detector of ultralytics.
    """
    saved = pickles.read_checkpoint(source)
    network = pickles.find_network(saved)
    if network.kind != NETWORK:
        refuse(source, f"it holds {network.kind} and no detector of ultralytics (v8 or later, or v5 with a u)")
    facts = _net_facts(saved, network, "ultralytics")
    facts["version"] = str(saved.root.get("version", ""))
    return pickles.write_network(target, saved, network, facts) | {name: facts[name] for name in ("names", "version")}


def convert_scaled_yolov4(source: Path, target: Path) -> dict:
    """Write the net of ``source``, one fold of the public VinBigData ensemble, as ``target``; return its facts.

    Raises UserError if it is not a detector of that family.
    """
    saved = pickles.read_checkpoint(source)
    network = pickles.find_network(saved)
    model = network.children.get("model")
    layers = [layer for layer in model.children.values() if isinstance(layer, Stub)] if isinstance(model, Stub) else []
    if not layers or layers[-1].name != "Detect" or "anchor_grid" not in (layers[-1].state.get("_buffers") or {}):
        refuse(source, f"it holds {network.kind} and no ScaledYOLOv4 detector")
    facts = _net_facts(saved, network, "scaled_yolov4")  # first, because it refuses modules that hold one another
    activations = {module.name for path, module in named_modules(network) if path.endswith(".act")}
    if not activations <= ACTIVATIONS:
        refuse(source, f"its net uses {', '.join(sorted(activations - ACTIVATIONS))} where ScaledYOLOv4 has Mish")
    return pickles.write_network(target, saved, network, facts) | {"names": facts["names"]}


def _net_facts(saved: Saved, network: Stub, kind: str) -> dict:
    """Return the facts needed to rebuild a net: its plan (``yaml``), class names, strides and ``eps``.

    ``names`` is None if the checkpoint has none. ``eps`` is the constant that its batch normalisations add to the
    variance; no state dict holds it. Raises UserError for a net without a plan.
    """
    try:
        names, stride = to_json_value(network.state.get("names")), network.state["stride"]
        norms = {module.state["eps"] for _, module in named_modules(network) if module.name == "BatchNorm2d"}
        if len(norms) != 1:
            raise ValueError("its batch normalisations differ" if norms else "its batch normalisations were fused away")
        if isinstance(stride, Array):
            stride = saved.tensor(stride).tolist()
        return {
            "kind": kind,
            "yaml": to_json_value(network.state["yaml"]),
            "names": [names[str(index)] for index in range(len(names))] if isinstance(names, dict) else names,
            "stride": [float(step) for step in stride],
            "eps": float(norms.pop()),
        }
    except (KeyError, TypeError, ValueError) as error:
        refuse(saved.path, f"its net does not say how it is built ({error})")
