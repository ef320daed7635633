"""Converting checkpoints of ultralytics, pickled nets with their plans, without that package."""

from pathlib import Path

from cxr.imaging.weights import pickles, yolo

KIND = "ultralytics"
NETWORK = "ultralytics.nn.tasks.DetectionModel"


def convert_ultralytics(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its facts.

    Raises UserError if it is not a detector of ultralytics.
    """
    saved = pickles.read(source)
    network = pickles.network(saved)
    if network.kind != NETWORK:
        pickles.refuse(source, f"it holds {network.kind} and no detector of ultralytics (v8 or later, or v5 with a u)")
    facts = yolo.facts(saved, network, KIND)
    facts["version"] = str(saved.root.get("version", ""))
    extra_facts = {name: facts[name] for name in ("names", "version")}
    return pickles.write(target, saved, network, facts) | extra_facts
