"""Converting the ScaledYOLOv4 checkpoints of the public VinBigData ensemble: pickled nets, one per fold."""

from pathlib import Path

from cxr.imaging.weights import pickles, yolo

KIND = "scaled_yolov4"
ACTIVATIONS = {"Mish", "MishCuda"}
"""Both compute the same; the second is a package for GPUs."""


def convert_scaled_yolov4(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its facts.

    Raises UserError if it is not a detector of that family.
    """
    saved = pickles.read(source)
    network = pickles.network(saved)
    head = yolo.layers(network)[-1:]
    if not head or head[0].name != "Detect" or "anchor_grid" not in (head[0].state.get("_buffers") or {}):
        pickles.refuse(source, f"it holds {network.kind} and no ScaledYOLOv4 detector")
    facts = yolo.facts(saved, network, KIND)  # first, because it refuses modules that hold one another
    activations = {module.name for path, module in pickles.named_modules(network) if path.endswith(".act")}
    if not activations <= ACTIVATIONS:
        pickles.refuse(
            source, f"its net uses {', '.join(sorted(activations - ACTIVATIONS))} where ScaledYOLOv4 has Mish"
        )
    return pickles.write(target, saved, network, facts) | {"names": facts["names"]}
