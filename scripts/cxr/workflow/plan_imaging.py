"""The imaging wing's part of the plan: how image files are decoded, and which published weights are needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cxr.imaging.weights.catalogue import check_placed, list_placed_files, plan_models, rule_params, select_converted
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings


def decoding_options(options: Mapping[str, Mapping]) -> dict:
    """Return the settings of frames that say how an image file is decoded. ``options``: of the stages."""
    return {name: options["frames"][name] for name in ("max_pixels", "window", "percentiles", "burned_in")}


@dataclass(frozen=True)
class WeightsPlan:
    """What the rules that fetch published weights take from the settings."""

    options: dict[str, dict]  # {artefact: its rule's options}
    needed: list[str]  # artefacts that engines and runs read
    placed: dict[str, list[str]]  # {artefact: files that the user placed}
    models: dict[str, dict]  # {model of the catalogue that a setting names: its files and options}


def make_weights_plan(
    settings: Settings, engine_files: Mapping[str, dict], runs: Mapping[str, dict], starts: Mapping, vlm: VlmPlan
) -> WeightsPlan:
    """Return the plan. ``engine_files``: inputs of engines; ``runs``, ``starts``: of ILS. Raises UserError."""
    folder = settings.weights.folder
    heads = {f"vlm.tuning.runs.{name}": dict(enumerate(vlm.runs[name]["sam"])) for name in vlm.with_head}
    inputs = {stage: files for stage, files in engine_files.items() if stage != "training"}
    artefacts = select_converted(inputs | starts | heads)
    user_by_artefact = {
        Path(starts[name]["lisa"]).name: f"training.runs.{name}"
        for name in runs
        if runs[name]["weights"] and "lisa" in starts[name]
    }
    is_classifier = settings.semisyn.healthy.classifier == "xrv"
    user_by_artefact |= {
        "xrv": "semisyn.healthy.classifier 'xrv'" if is_classifier else "semisyn.realism.features with 'xrv'",
        "inception": "semisyn.realism.features with 'inception'",
        "chexbert": "radvlm's 'chexbert'",
    }
    if head_keys := [key for key, files in heads.items() if files]:
        user_by_artefact["sam"] = f"{head_keys[0]}.segmentation 'head'"
    check_placed(artefacts, folder, user_by_artefact)
    pins = settings.weights.sha256
    models = plan_models(_used_models(settings), pins)
    return WeightsPlan(rule_params(pins, folder), artefacts, list_placed_files(folder), models)


def _used_models(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return {setting: (model, revision)} of the models of runs and annotators, without those behind a server."""
    runs = {f"vlm.tuning.runs.{name}": run for name, run in settings.vlm.tuning.runs.items()}
    evaluation = settings.radvlm.evaluation
    # not every annotator has a section of the evaluation
    sections = {f"radvlm.evaluation.{name}": getattr(evaluation, name, None) for name in evaluation.annotators}
    return {
        f"{key}.model": (section.model, getattr(section, "revision", ""))
        for key, section in (runs | sections).items()
        if section and getattr(section, "transport", "") != "server"
    }
