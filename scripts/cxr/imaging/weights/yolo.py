"""Shared code for the checkpoints of both YOLO families: a pickled net that holds its own plan."""

from cxr.imaging.weights.pickles import Saved, named_modules, plain, refuse
from cxr.imaging.weights.stubs import Array, Stub


def facts(saved: Saved, network: Stub, kind: str) -> dict:
    """Return the facts needed to rebuild a net: its plan (``yaml``), class names, strides and ``eps``.

    ``names`` is None if the checkpoint has none. ``eps`` is the constant that its batch normalisations add to the
    variance; no state dict holds it. Raises UserError for a net without a plan.
    """
    try:
        names, stride = plain(network.state.get("names")), network.state["stride"]
        norms = {module.state["eps"] for _, module in named_modules(network) if module.name == "BatchNorm2d"}
        if len(norms) != 1:
            raise ValueError("its batch normalisations differ" if norms else "its batch normalisations were fused away")
        if isinstance(stride, Array):
            stride = saved.tensor(stride).tolist()
        return {
            "kind": kind,
            "yaml": plain(network.state["yaml"]),
            "names": [names[str(index)] for index in range(len(names))] if isinstance(names, dict) else names,
            "stride": [float(step) for step in stride],
            "eps": float(norms.pop()),
        }
    except (KeyError, TypeError, ValueError) as error:
        refuse(saved.path, f"its net does not say how it is built ({error})")


def layers(network: Stub) -> list[Stub]:
    """Return the layers of a net, first to last."""
    model = network.children.get("model")
    return [layer for layer in model.children.values() if isinstance(layer, Stub)] if isinstance(model, Stub) else []
