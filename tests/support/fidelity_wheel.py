"""The Inception-v3 that torch-fidelity publishes, from its wheel: read at test time, copied nowhere."""

import os
import sys
import types
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = (
    "defaults",
    "deprecations",
    "helpers",
    "feature_extractor_base",
    "interpolate_compat_tensorflow",
    "feature_extractor_inceptionv3",
)
"""Modules of the wheel that the net needs; the others want torchvision."""


@contextmanager
def fidelity() -> Iterator[types.ModuleType]:
    """Yield the module of the net; skip the test where ``CXR_ILS_FIDELITY`` names no wheel."""
    named = os.environ.get("CXR_ILS_FIDELITY")
    if not named:
        wanted = "pip download --no-deps torch-fidelity==0.4.0"
        pytest.skip(f"no wheel of torch-fidelity: CXR_ILS_FIDELITY names it ({wanted})")
    package = types.ModuleType("torch_fidelity")
    package.__path__ = []
    held = {"torch_fidelity": package} | {f"torch_fidelity.{name}": None for name in NAMES}
    try:
        sys.modules["torch_fidelity"] = package
        with zipfile.ZipFile(Path(named)) as wheel:
            for name in NAMES:
                module = types.ModuleType(f"torch_fidelity.{name}")
                module.__package__ = "torch_fidelity"
                sys.modules[module.__name__] = module
                exec(compile(wheel.read(f"torch_fidelity/{name}.py"), name, "exec"), module.__dict__)
        yield module
    finally:
        for name in held:
            sys.modules.pop(name, None)
