"""The weights in this repository that the engines `lite` read, and the licences in their model cards."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("organs/CARD.md", "anomaly/CARD.md", "boxes/CARD.md", "rosalia/CARD.md", "organs/UPRIGHT.md",
                  "organs/lite.onnx", "anomaly/lite.onnx", "boxes/lite.onnx", "rosalia/model.safetensors",
                  "organs/upright.onnx")  # fmt: skip
READ_BY = {"organs/lite.onnx": ("organs", "anatomy"), "anomaly/lite.onnx": ("anomaly",), "boxes/lite.onnx": ("boxes",),
           "rosalia/model.safetensors": ("training",)}  # fmt: skip
"""{file in ``resources/``: the stages whose engine ``lite`` reads it}; its card lies beside it."""


class Weights(NamedTuple):
    """A weights file, the stages that read it, its licence as its model card words it, and the card."""

    file: Path
    used_by: list[str]
    licence: str
    card: Path


def weights_of(engines: Mapping[str, str]) -> list[Weights]:
    """Return the repository's own weights that a run with these engines ({stage: engine}) reads."""
    used = {file: [stage for stage in stages if engines.get(stage) == "lite"] for file, stages in READ_BY.items()}
    weights = [_weights(file, stages, f"{Path(file).parent}/CARD.md") for file, stages in used.items() if stages]
    if "organs" in engines:  # every engine needs the net that finds an image's orientation
        weights.append(_weights("organs/upright.onnx", ["organs"], "organs/UPRIGHT.md"))
    return weights


def _weights(file: str, used_by: list[str], card: str) -> Weights:
    return Weights(RESOURCES / file, used_by, licence_of(RESOURCES / card), RESOURCES / card)


def licence_of(card: Path) -> str:
    """Return the licence that a model card's first table states."""
    text = card.read_text(encoding="utf-8")
    return re.search(r"^\| Licence \| (.*?) \|$", text, flags=re.M).group(1).replace("**", "")
