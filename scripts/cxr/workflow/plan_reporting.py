"""The reporting wing's part of the plan: reviews, references, the page, and what a release may publish."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import yaml

from cxr.base.errors import UserError, existing_file
from cxr.base.exclusions import STAGES
from cxr.base.paths import SCRIPTS
from cxr.reporting.explain.request import read_request as read_explain_request
from cxr.workflow.settings import Settings

PAGE_TABLES = ("splits", "funnel", "conservation", "counts", "recall")
EMBEDDED_TRUTH = "results/phantom/truth.h5"
ENVS = SCRIPTS.parent / "envs"
DATASET_ENGINES = ("reports", "organs", "anomaly", "anatomy", "boxes")
PATH_KEYS = ("root", "tables", "manifest", "exclude", "chexstruct", "table", "folder", "server")
"""Keys that name a user's file, folder or address."""
PATH_PATTERN = re.compile(r"^(?:[/~\\.]|[A-Za-z]:[\\/]|\w+://)|@")
"""Texts that look like a path or address under any other key."""
ABOUT_KEYS = ("withhold", "name", "version", "date", "licence", "creator", "cite")
OPTIONAL_RESULTS = {
    "ablation": ("points.tsv", "curves.png", "map.png"),
    "evaluation": ("comparison.tsv", "masks.png", "text.png"),
    "semisyn": ("healthy/funnel.tsv", "dataset/conservation.tsv", "dataset/sheet.jpg"),
    "medground": (
        "verification/passrate.tsv", "dataset/statistics.tsv", "dataset/language.png", "dataset/gallery/gallery.jsonl",
        "dataset/paper.tsv", "scoring/comparison.tsv", "scoring/scores.png",
    ),
    "radvlm/evaluation": (
        "comparison.tsv", "judge_check.tsv", "gallery/gallery.jsonl", "labels.png", "ablation.png", "looks.png",
        "conservation.tsv",
    ),
}  # fmt: skip
"""{folder of results: files that the page shows if they exist}; a bare run does not make them."""


class ReportingPlan:
    """What the rules of the reporting wing take from the settings."""

    def __init__(self, settings: Settings, config: dict, runs: Collection[str], scored: Collection[str]):
        """``config``: requests of --config; ``runs``, ``scored``: ILS's runs, its evaluated models.

        Raises UserError for missing sheets and an unknown study.
        """
        # the threshold set that experts review, and their filled sheets
        self.reviewed_set = settings.review.thresholds or settings.thresholds.build[0]
        self.sheets = find_sheets("review.sheets", settings.review.sheets)
        self.tables = [*PAGE_TABLES, *(["truth"] if settings.cohort.source == "embedded" else [])]
        # shown on the page if they exist
        self.optional_results = optional_results(runs, scored, settings.inference.paraphrases)
        # {reference of the agreement: its rule's options}, and the modules that read them
        self.references = reference_options(settings)
        formats = {reference.format for reference in settings.agreement.references.values()}
        self.reference_formats = sorted(f"annotations.{name}" for name in formats)
        # the request of `snakemake explain`
        self.explain = read_explain_request(config, Path("results"))


def reference_options(settings: Settings) -> dict[str, dict]:
    """Return {reference: its rule's options}; by default the embedded cohort's truth is the only reference."""
    references = settings.agreement.references
    if not references and settings.cohort.source == "embedded":
        truth = {"format": "painted", "path": EMBEDDED_TRUTH, "classes": {}, "image_id": "{stem}", "name": "painted"}
        return {"painted": truth}
    return {name: reference.as_dict() | {"name": name} for name, reference in references.items()}


def find_sheets(key: str, names: Sequence[str]) -> list[str]:
    """Return the files, and the CSV files of the folders, that a setting names. Raises UserError for missing ones."""
    sheet_paths = []
    for name in names:
        path = Path(name)
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{key}: the folder {name!r} holds no .csv file: correct the path")
        sheet_paths += [str(existing_file(key, str(file))) for file in files]
    return sheet_paths


def optional_results(runs: Collection[str], scored: Collection[str], reworded: bool) -> list[str]:
    """Return the results that the page shows if they exist and that a bare run does not make.

    ``runs``: the runs of ILS; ``scored``: its evaluated models; ``reworded``: whether also in other wordings.
    """
    files = [f"results/{folder}/{name}" for folder, names in OPTIONAL_RESULTS.items() for name in names]
    files += ["results/evaluation/paraphrases.tsv"] if reworded else []
    files += [f"results/evaluation/{name}/pairs.parquet" for name in scored]
    return files + [f"results/training/{name}/curves.png" for name in runs]


def release_options(settings: Settings, options: dict[str, dict]) -> dict[str, dict]:
    """Return the options of the release's rules; ``options``: of the other stages."""
    release = settings.release.as_dict() | {"withhold": settings.release.kinds()}
    about = {
        "seed": settings.seed,
        "source": settings.cohort.source,
        "settings": {stage: without_paths(options[stage]) for stage in STAGES},
        "engines": {stage: options[stage]["engine"] for stage in DATASET_ENGINES},
    }
    return {
        "release": {name: release[name] for name in ("withhold", "coco_pixels", "name", "version", "date", "licence")},
        "release_mixes": {name: release[name] for name in ABOUT_KEYS},
        "release_dicom": {name: release[name] for name in ("withhold", "date")},
        "release_package": {name: release[name] for name in (*ABOUT_KEYS, "url")} | about,
    }


def without_paths(value: object, name: str = "") -> object:
    """Return settings in which every text that names a file, folder, address or e-mail is empty."""
    if isinstance(value, dict):
        return {key: without_paths(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner, name) for inner in value]
    if isinstance(value, str) and (name in PATH_KEYS or PATH_PATTERN.search(value) or Path(value).is_absolute()):
        return ""
    return value


def read_environments(engines: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {environment: pins of its packages}, from ``envs/``, of the stages that lead to a dataset."""
    pins_by_environment = {}
    for stage in STAGES:
        files = [ENVS / f"{name}.yaml" for name in (f"{stage}-{engines.get(stage)}", stage)]
        if file := next((path for path in files if path.is_file()), None):
            dependencies = yaml.safe_load(file.read_text(encoding="utf-8"))["dependencies"]
            pip_pins = next((part["pip"] for part in dependencies if isinstance(part, dict)), [])
            conda_pins = [part for part in dependencies if isinstance(part, str) and part != "pip"]
            pins_by_environment[file.stem] = conda_pins + pip_pins
    return pins_by_environment
