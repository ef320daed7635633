"""Options with which the study paints images and trains detectors: default settings, and the numbers below."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from cxr.base.engines import Setup, engine_module
from cxr.base.paths import RESOURCES
from cxr.semisyn.detectors.lite import LiteOptions
from cxr.semisyn.editing.engine import EditingEngine
from cxr.workflow.settings import Settings

SEED = 2026
"""Seed of placement and painting."""
CODE = (
    "painting",
    "detection",
    *(f"semisyn/{part}" for part in ("findings", "priors", "placement", "editing", "detectors")),
)
"""Packages whose code a training depends on."""


@dataclass(frozen=True)
class Study:
    """Size of the study: steps of a training, jobs per finding and fold, bootstrap draws of patients."""

    updates: int = 220
    jobs: int = 150
    replicates: int = 2000


@cache
def _plain() -> dict:
    return Settings().as_dict()["semisyn"]


def detector_options(study: Study) -> LiteOptions:
    """Return the options of a detector's training."""
    return LiteOptions(**_plain()["detectors"]["lite"] | {"updates": study.updates})


def load_editor(prompts: frozenset[str]) -> EditingEngine:
    """Return the engine lite of the stage semisyn_editing with its default settings."""
    settings = _plain()
    options = SimpleNamespace(findings=settings["findings"])
    return engine_module("cxr.semisyn.editing", "lite").load(options, Setup(), prompts)


def edit_config() -> dict:
    """Return the configuration of the engine lite."""
    return _plain()["editing"]["configs"]["lite"]


def max_leak() -> float:
    """Return the maximum fraction of an edit's squared change that may lie outside its boxes."""
    return _plain()["editing"]["max_leak"]


@cache
def synthesis_digest(study: Study) -> str:
    """Return a digest of the code, resources and settings on which the synthetic images depend."""
    package = Path(__file__).resolve().parents[2] / "scripts/cxr"
    files = [path for part in CODE for path in sorted((package / part).glob("*.py"))]
    files += [Path(__file__), Path(__file__).with_name("synthesis.py")]
    files += [RESOURCES / "semisyn" / name for name in ("priors.yaml", "prompts.yaml")]
    digest = hashlib.blake2b(digest_size=6)
    for path in files:
        digest.update(path.read_bytes())
    digest.update(repr([_plain()[name] for name in ("priors", "placement", "editing")]).encode())
    digest.update(str(study.jobs).encode())
    return digest.hexdigest()
