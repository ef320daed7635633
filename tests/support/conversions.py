"""Converters of the catalogue's weights, as the rules of files placed by hand find them."""

from collections.abc import Callable
from pathlib import Path

from cxr.imaging.weights import catalogue, placed
from cxr.imaging.weights.manifest import WeightsOptions


def converter(artefact: str) -> Callable[[Path, Path], dict]:
    return placed.find_converter(WeightsOptions(**catalogue.rule_params({})[artefact]))
