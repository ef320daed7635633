"""Forecast of each system's output. Finished files are counted, and all others are estimated from the run's input."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cxr.base.resources import load_resource
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.settings import COHORT
from cxr.semisyn.placement.quota import PlanOptions, images_requested, num_jobs
from cxr.semisyn.shared import images_per_finding
from cxr.workflow.forecast.cohort import CohortForecast, is_finished, share_handed_over, share_without_finding
from cxr.workflow.plan import Plan

RESOURCE_FILES = ("costs.yaml",)
MEDGROUND, RADVLM = "results/medground/dataset/", "results/radvlm/instructions/"
HEALTHY = "results/semisyn/healthy/images.parquet"
DRAWN_SPLITS = {"train": 0.6, "validate": 0.1, "test": 0.3}
"""Approximate fractions of MedGround's synthetic images in the splits."""
EXACT_BYTES, PEEKED_BYTES = 50_000_000, 10_000_000
"""Largest size in bytes of a file whose lines are all counted, and bytes read to estimate those of a larger file."""


def unit_costs() -> dict:
    """Return the content of ``resources/costs.yaml``: measured costs per image, report, line and so on."""
    return load_resource(RESOURCE_FILES[0])


def yield_of(name: str) -> float:
    """Return a yield of ``resources/costs.yaml``: the expected output per unit of input, such as pairs per report."""
    return unit_costs()["forecast"]["yields"][name]["number"]


@dataclass(frozen=True)
class SystemCounts:
    """Expected output of each system. Estimates may be fractional.

    model_reports: reports that a language model reads. pairs: {threshold set: {split: instruction-answer pairs
    of ILS}}. num_healthy: healthy X-rays for SemiSynCXR, estimated unless is_healthy_counted. num_asked: edited images
    that the settings request for each finding. edits: edits for all findings together. exported_images: {size of a
    SemiSynCXR dataset: images}. queries: {split: queries of MedGround}. mix_lines: {mix of RadVLM: {split: lines}}.
    training_pairs, test_pairs: {run of ROSALIA: pairs}. tuning_updates: {run of a vision-language model: optimizer
    updates}. questions: {set of samples: questions}. detector_updates: updates in one training of a detector.
    """

    model_reports: float = 0.0
    pairs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    num_healthy: float = 0.0
    is_healthy_counted: bool = False
    num_asked: int = 0
    edits: float = 0.0
    exported_images: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, float] = field(default_factory=dict)
    mix_lines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    training_pairs: Mapping[str, float] = field(default_factory=dict)
    test_pairs: Mapping[str, float] = field(default_factory=dict)
    tuning_updates: Mapping[str, int] = field(default_factory=dict)
    questions: Mapping[str, float] = field(default_factory=dict)
    detector_updates: float = 0.0


def count_systems(plan: Plan, cohort: CohortForecast, remade: set[str], systems: set[str]) -> SystemCounts:
    """Return each system's expected output. remade: files that the run makes. systems: systems with planned jobs."""
    pairs = {
        name: _of_splits(f"results/dataset/{name}", remade, lambda split: cohort.num_reports[split] * yield_of("pairs"))
        for name in dict.fromkeys([*plan.build, *(run["thresholds"] for run in plan.ils.runs.values())])
    }
    queries = _of_splits("results/medground/dataset", remade, lambda split: _queries(plan, cohort, split))
    mixes = {
        mix: _of_splits(f"results/radvlm/instructions/{mix}", remade, lambda split: _mix_lines(plan, cohort, split))
        for mix in plan.radvlm.mixes
    }
    num_healthy = _healthy(plan, cohort, remade) if "semisyn" in systems else 0.0
    jobs = PlanOptions(**plan.options["semisyn_placement_plan"])
    num_asked, num_findings = images_requested(round(num_healthy), jobs), len(jobs.findings)
    lines = {MEDGROUND: {"": queries}, RADVLM: mixes}
    return SystemCounts(
        model_reports=_model_reports(plan, cohort, remade),
        pairs=pairs,
        num_healthy=num_healthy,
        is_healthy_counted=is_finished(HEALTHY, remade),
        num_asked=num_asked,
        edits=num_jobs(num_asked, jobs.spare) * num_findings,
        exported_images={
            str(size): min(num_asked, images_per_finding(size, num_asked, num_findings)) * num_findings
            for size in plan.semisyn.sizes
        },
        queries=queries,
        mix_lines=mixes,
        training_pairs={name: pairs[run["thresholds"]]["train"] for name, run in plan.ils.runs.items()},
        test_pairs={name: pairs.get(run["test"], {}).get(plan.ils.split, 0.0) for name, run in plan.ils.runs.items()},
        tuning_updates={name: _updates(run, lines) for name, run in plan.vlm.runs.items() if run["trained"]},
        questions={name: _questions(plan, name, path, lines) for name, path in plan.vlm.all_lines.items()},
        detector_updates=plan.options["semisyn_detectors"]["updates"],
    )


def _model_reports(plan: Plan, cohort: CohortForecast, remade: set[str]) -> float:
    """Return the number of reports that a language model reads: 0, all, or those that the rules engine passes on."""
    num_xrays, sample = sum(cohort.num_xrays.values()), cohort.sample
    if f"results/reports/structured/{plan.shards[0]}.jsonl" not in remade:
        return 0.0
    if plan.engines["reports"] == "vllm":
        return num_xrays
    if sample.is_empty() or "has_finding" in sample.columns:
        return num_xrays * yield_of("handed_over")
    return num_xrays * share_handed_over(sample.to_dicts(), plan.options["reports"])


def _of_splits(folder: str, remade: set[str], estimate: Callable[[str], float]) -> dict[str, float]:
    """Return {split: lines of its JSONL file in ``folder``}, ``estimate(split)`` if the file is absent or remade."""
    paths = {split: Path(f"{folder}/{split}.jsonl") for split in SPLITS}
    return {
        split: num_lines(path) if str(path) not in remade and path.is_file() else estimate(split)
        for split, path in paths.items()
    }


def num_lines(path: Path) -> int:
    """Return the number of lines of a file. For a file above :data:`EXACT_BYTES` the number is an estimate."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size <= EXACT_BYTES:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        return round(file.read(PEEKED_BYTES).count(b"\n") * size / PEEKED_BYTES)


def _healthy(plan: Plan, cohort: CohortForecast, remade: set[str]) -> float:
    """Return the number of healthy X-rays, counted in their table or estimated from reports or typical yields."""
    if is_finished(HEALTHY, remade):
        return float(pl.scan_parquet(HEALTHY).select(pl.len()).collect().item())
    options = plan.options["semisyn_healthy"]
    num_candidates = sum(cohort.num_reports[split] for split in options["splits"])
    num_candidates *= 1.0 if "AP" in options["views"] else cohort.share_pa
    sample = cohort.sample
    if plan.semisyn.healthy_options["labels"] == "chexpert" or sample.is_empty():
        return num_candidates * yield_of("healthy_unread")
    if "has_finding" in sample.columns:
        share = 1.0 - sample["has_finding"].mean()
    else:
        share = share_without_finding(sample.to_dicts(), plan.options["reports"], options["devices"])
    return num_candidates * share * yield_of("healthy")


def _queries(plan: Plan, cohort: CohortForecast, split: str) -> float:
    """Return how many queries MedGround will make in a split. A user's sources do not count: their size is unknown."""
    kinds = [keys["kind"] for keys in plan.medground.sources.values() if keys["use"] == "dataset"]
    of_cohort = cohort.num_reports[split] * yield_of("queries") * kinds.count("ils")
    num_drawn = plan.settings.medground.sources.cells * kinds.count("cells")
    return of_cohort + num_drawn * DRAWN_SPLITS[split] * yield_of("queries_drawn")


def _mix_lines(plan: Plan, cohort: CohortForecast, split: str) -> float:
    """Return how many samples a RadVLM mix will have in a split. External sources, of unknown size, do not count."""
    if COHORT not in plan.radvlm.sources:
        return 0.0
    return cohort.num_reports[split] * yield_of("train_lines" if split == "train" else "other_lines")


def _of_lines(path: str, lines: Mapping[str, Mapping[str, Mapping[str, float]]]) -> float:
    """Return the number of lines of a JSONL file: the expected number for a file of MedGround or RadVLM, else counted.
    lines: {folder of the system: {mix of RadVLM, or "" for MedGround: {split: expected number of lines}}}."""
    split = {"exchanged": "test"}.get(Path(path).stem, Path(path).stem)
    if path.startswith(MEDGROUND):
        return lines[MEDGROUND][""].get(split, 0.0)
    if path.startswith(RADVLM):
        return lines[RADVLM].get(Path(path).parent.name, {}).get(split, 0.0)
    return num_lines(Path(path)) if Path(path).is_file() else 0.0


def _updates(run: Mapping, lines: Mapping) -> int:
    recipe = run["options"]["recipe"]
    return recipe["updates"] or math.ceil(recipe["epochs"] * _of_lines(run["train"], lines) / recipe["batch"])


def _questions(plan: Plan, name: str, path: str, lines: Mapping) -> float:
    """Return how many samples of the set ``name`` a model is asked, at most ``vlm.answers.most`` of each task.
    ``path``: JSONL file of the set. ``lines``: see :func:`_of_lines`."""
    number = _of_lines(path, lines)
    tasks = {row.task for row in plan.radvlm.mixes.get(Path(path).parent.name, ())} or {name}
    return min(number, plan.vlm.most * len(tasks)) if plan.vlm.most else number
