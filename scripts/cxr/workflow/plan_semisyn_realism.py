"""The plan of the stage semisyn_realism: its real images, and its engines of features with their files."""

from collections.abc import Sequence
from dataclasses import dataclass

from cxr.base.errors import UserError, existing_folder
from cxr.workflow.engine_files import declared
from cxr.workflow.plan_semisyn_references import reference_file
from cxr.workflow.settings import Settings

PACKAGE = "cxr.semisyn.realism"
RESULTS = "results/semisyn/realism"
ALWAYS = {"auroc", "ap1070"}
"""Metrics that the detector gives, without real images and features."""


@dataclass(frozen=True)
class RealismPlan:
    """What the rules of the stage take from the settings.

    reference, formats: the file of people's boxes and the module that reads it, [] without. files, gpus, metrics: of
    each engine of features that runs, its input files, its number of GPUs, and {kind of metric: its name}; own: its own
    settings that are no files. shards: all of the cohort.
    """

    reference: list[str]
    formats: list[str]
    files: dict[str, dict[str, str]]
    gpus: dict[str, int]
    own: dict[str, dict]
    metrics: dict[str, dict[str, str]]
    shards: Sequence[str]

    def references(self) -> list[str]:
        """Return the tables of real boxes."""
        return [f"{RESULTS}/{shard}.reference.parquet" for shard in self.shards if self.reference]

    def real_features(self) -> dict[str, list[str]]:
        """Return the files of features of the real images, by the names that the scores have for them."""
        return {
            f"real_{engine}": [f"{RESULTS}/{shard}.{engine}.features.h5" for shard in self.shards]
            for engine, metrics in self.metrics.items()
            if self.reference and set(metrics) != {"similarity"}
        }


def realism_plan(settings: Settings, shards: Sequence[str]) -> RealismPlan:
    """Return the plan. An engine whose every metric needs real images does not run without a reference.

    Raises UserError for a file that is missing, and for a selection by metrics none of which there will be.
    """
    section = settings.semisyn.realism
    reference, formats = reference_files(settings, section.reference)
    metrics = {name: declared(PACKAGE, name, "METRICS", {}) for name in section.features}
    run = {
        name: engine_metrics for name, engine_metrics in metrics.items() if reference or "similarity" in engine_metrics
    }
    _refuse_no_metric(settings, run)
    gpu = min(1, settings.compute.gpus)
    return RealismPlan(
        reference=reference,
        formats=formats,
        files={name: _files(name, settings) for name in run},
        gpus={name: gpu if declared(PACKAGE, name, "GPU", False) else 0 for name in run},
        own={name: {"sha256": section.clip.sha256} if name == "clip" else {} for name in run},
        metrics=run,
        shards=shards,
    )


def _refuse_no_metric(settings: Settings, metrics: dict[str, dict[str, str]]) -> None:
    """Raise UserError where semisyn_selection would choose by nothing. ``metrics``: of the engines that run."""
    real, selection_metrics = bool(settings.semisyn.realism.reference), settings.semisyn.selection.metrics
    available_metrics = ALWAYS | ({"c2st"} if real else set())
    available_metrics |= {
        name
        for engine_metrics in metrics.values()
        for kind, name in engine_metrics.items()
        if real or kind == "similarity"
    }
    if not available_metrics & set(selection_metrics):
        raise UserError(
            f"semisyn.selection.metrics is {', '.join(selection_metrics)}, of which semisyn.realism gives none: "
            f"choose of {', '.join(sorted(available_metrics))}, or set semisyn.realism.reference and features"
        )


def reference_files(settings: Settings, name: str) -> tuple[list[str], list[str]]:
    """Return the file of a reference and the module that reads it, both [] for "". Raises UserError for no file."""
    if not name:
        return [], []
    return [reference_file(settings, name)], [f"annotations.{settings.semisyn.references[name].format}"]


def _files(engine: str, settings: Settings) -> dict[str, str]:
    if key := declared(PACKAGE, engine, "INSTEAD", None):
        folder = getattr(getattr(settings.semisyn.realism, engine), key)
        return {"folder": str(existing_folder(f"semisyn.realism.{engine}.{key}", folder))}
    return declared(PACKAGE, engine, "INPUTS", {})
