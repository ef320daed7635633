"""List of the weights files that a run reads. They are in this repository, with a model card, or were downloaded."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("organs/CARD.md", "anomaly/CARD.md", "boxes/CARD.md", "rosalia/CARD.md", "organs/UPRIGHT.md",
                  "organs/lite.onnx", "anomaly/lite.onnx", "boxes/lite.onnx", "rosalia/model.safetensors",
                  "organs/upright.onnx")  # fmt: skip
STAGES_BY_FILE = {
    "organs/lite.onnx": ("organs", "anatomy"),
    "anomaly/lite.onnx": ("anomaly",),
    "boxes/lite.onnx": ("boxes",),
    "rosalia/model.safetensors": ("training",),
}
"""{file in ``resources/``: stages whose ``lite`` engine reads it}. The model card is in the same folder."""


def list_weights(engines: Mapping[str, str], manifests: Iterable[str | Path], files: str) -> list[dict]:
    """Return the weights files that a run reads, those of this repository first, each as a dict of artefact, licence,
    used_by, source, name, file, bytes and sha256. ``engines``: {stage: engine}. ``manifests``: files in
    ``results/weights``. ``files``: key of the list of files in each manifest, ``used`` or ``published``."""
    own_files = [
        (file, [stage for stage in stages if engines.get(stage) == "lite"], "CARD.md")
        for file, stages in STAGES_BY_FILE.items()
    ]
    if "organs" in engines:  # every engine uses the net that determines the orientation
        own_files.append(("organs/upright.onnx", ["organs"], "UPRIGHT.md"))
    weights = []
    for file, stages, card in own_files:
        path, folder = RESOURCES / file, Path(file).parent.name
        if stages:
            card_text, data = path.with_name(card).read_text(encoding="utf-8"), path.read_bytes()
            weights.append({
                "artefact": f"{folder} {path.stem}", "used_by": ", ".join(stages),
                "source": f"resources/{folder}/{card}",
                "licence": re.findall(r"^\| Licence \| (.*?) \|$", card_text, flags=re.M)[0].replace("**", ""),
                "name": file, "file": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
            })  # fmt: skip
    for manifest_path in manifests:
        manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
        about = {name: manifest[name] for name in ("artefact", "licence", "used_by", "source")}
        weights += [about | {"name": row["file"]} | row for row in manifest[files]]
    return weights
