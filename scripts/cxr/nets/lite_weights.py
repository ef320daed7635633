"""The weights in this repository that the `lite` engines read, and the licences in their model cards."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

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
"""{file in ``resources/``: the stages whose ``lite`` engine reads it}; its model card is in the same folder."""


class LiteWeights(NamedTuple):
    """A weights file, the stages that read it, its licence as its model card states it, and the card."""

    file: Path
    used_by: list[str]
    licence: str
    card: Path


def list_lite_weights(engines: Mapping[str, str]) -> list[LiteWeights]:
    """List the repository's own weights that a run with these engines ({stage: engine}) reads."""
    rows = [
        (file, [stage for stage in stages if engines.get(stage) == "lite"], f"{Path(file).parent}/CARD.md")
        for file, stages in STAGES_BY_FILE.items()
    ]
    if "organs" in engines:  # every engine reads the net that determines the orientation
        rows.append(("organs/upright.onnx", ["organs"], "organs/UPRIGHT.md"))
    weights = []
    for file, stages, card in rows:
        if stages:
            card_text = (RESOURCES / card).read_text(encoding="utf-8")
            licence = re.findall(r"^\| Licence \| (.*?) \|$", card_text, flags=re.M)[0].replace("**", "")
            weights.append(LiteWeights(RESOURCES / file, stages, licence, RESOURCES / card))
    return weights
