"""Reasons to refuse a run: splits without subjects, healthy X-rays that are used too often, sources without samples."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cxr.base.vocabulary import SPLITS
from cxr.radvlm.instructions.mix import explain_unused_sources
from cxr.radvlm.settings import COHORT
from cxr.semisyn.placement.quota import PlanOptions, explain_overuse
from cxr.workflow.forecast.cohort import CohortForecast
from cxr.workflow.forecast.counts import SystemCounts
from cxr.workflow.plan import Plan
from cxr.workflow.snakemake_compat import Planned

MORE_STUDIES = "take more studies, or other splits (cohort.split, or the table's column split)"
READERS = {
    ("training_run", "train"): ("train{} on", "take another threshold set (training.runs), or more studies"),
    ("training_run", "validate"): ("validate{} with", MORE_STUDIES),
    ("inference_run", "lines"): ("ask{}", "choose another inference.split"),
    ("vlm_tuning_run", "lines"): ("tune{} on", MORE_STUDIES),
    ("medground_scoring_run", "lines"): ("score{}", MORE_STUDIES),
    ("radvlm_evaluation_scores", "lines"): ("score{}", MORE_STUDIES),
    ("review_pages", "lines"): ("review{}", "choose another review.split"),
    ("review_query_pages", "lines"): ("review{}", MORE_STUDIES),
}
"""{(rule, name of its JSONL input): (what the rule does with the lines, advice if the file has no lines)}."""
OF_SYSTEM = {"results/dataset/": "ILS", "results/medground/": "MedGround", "results/radvlm/instructions/": "RadVLM"}


def refusals(plan: Plan, cohort: CohortForecast, counts: SystemCounts, planned: Sequence[Planned]) -> list[str]:
    """Return a sentence for each reason why the run must not start."""
    sentences = [*_empty_splits(plan, cohort, planned)]
    if any(job.rule == "semisyn_placement_plan" for job in planned):
        splits = plan.options["semisyn_healthy"]["splits"]
        if not any(cohort.num_subjects[split] for split in splits):
            needed = " or ".join(splits)
            sentences.append(f"semisyn.healthy.splits is {needed}, but {_why_empty(plan, splits[0])}")
        elif counts.is_healthy_counted:
            options = PlanOptions(**plan.options["semisyn_placement_plan"])
            sentences.append(explain_overuse(round(counts.num_healthy), options))
    if any(job.rule.startswith("radvlm_instructions") for job in planned):
        sentences.append(explain_unused_sources(plan.radvlm.mixes, plan.radvlm.sources))
    return list(dict.fromkeys(filter(None, sentences)))


def _empty_splits(plan: Plan, cohort: CohortForecast, planned: Sequence[Planned]) -> Iterator[str]:
    """Yield a sentence for each job that would read an empty finished file, or lines of a split without subjects.
    Files that this run makes are not checked here. The job that reads one of them refuses an empty file."""
    planned_paths = {path for job in planned for path in job.output}
    for job in planned:
        for (rule, name), (action, remedy) in READERS.items():
            if rule != job.rule or not job.input.get(name):
                continue
            path = job.input[name]
            if path not in planned_paths and Path(path).is_file() and not Path(path).stat().st_size:
                line = "pair" if path.startswith("results/dataset/") else "sample"
                yield f"{path} holds no {line}, so there is nothing to {action.format('')}: {remedy}"
            path = plan.vlm.all_lines.get(Path(path).stem, path)
            split = _split_of(path)
            if split and not cohort.num_subjects[split] and _is_of_cohort(plan, path):
                system = next(title for folder, title in OF_SYSTEM.items() if path.startswith(folder))
                action = action.format(f" {system}")
                yield f"there is nothing to {action} in the split {split}: {_why_empty(plan, split)}"


def _split_of(path: str) -> str:
    """Return the split of a system's JSONL file, "" for another file."""
    is_of_system = any(path.startswith(folder) for folder in OF_SYSTEM)
    return Path(path).stem if is_of_system and Path(path).stem in SPLITS else ""


def _is_of_cohort(plan: Plan, path: str) -> bool:
    """Return whether a JSONL file is made from the cohort alone, without other sources."""
    if path.startswith("results/radvlm/"):
        return list(plan.radvlm.sources) == [COHORT]
    if path.startswith("results/medground/"):
        return all(keys["kind"] == "ils" for keys in plan.medground.sources.values())
    return re.match(r"results/dataset/[^/]+/", path) is not None and path.split("/")[2] in plan.sets


def _why_empty(plan: Plan, split: str) -> str:
    """Return the part of a sentence that says why the cohort has no subject in a split, and what to do."""
    if plan.options["cohort"]["split"].get(split) == 0:
        return f"cohort.split.{split} is 0; raise it, or leave cohort.split out"
    return (
        "the cohort has no subject with an image and a report there; add subjects, or empty the table's column split. "
        "Each split gets a subject if at least three subjects have no split in the table"
    )
