"""The plan of a run for ``rules/reporting``: reviews, comparisons with annotations, the page, and the release."""

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
"""Settings whose value is a file, folder or address of the user."""
PATH_PATTERN = re.compile(r"^(?:[/~\\.]|[A-Za-z]:[\\/]|\w+://)|@")
"""Pattern of values that look like a path or address, whatever the setting."""
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
"""{folder of results: files that the page shows if they exist}. `snakemake` without a target does not make them."""


class ReportingPlan:
    """Files and options for the rules in ``rules/reporting``, from the settings."""

    def __init__(self, settings: Settings, config: dict, runs: Collection[str], scored: Collection[str]):
        """Derive the plan. Raises UserError for missing review sheets or an unknown study.
        ``config``: values of --config. ``runs``: names of ``training.runs``. ``scored``: models that ILS evaluates."""
        # the threshold set whose pairs experts review, and the sheets that the experts have filled
        self.reviewed_set = settings.review.thresholds or settings.thresholds.build[0]
        self.sheets = find_sheets("review.sheets", settings.review.sheets)
        self.tables = [*PAGE_TABLES, *(["truth"] if settings.cohort.source == "embedded" else [])]
        # results that the page shows if they exist
        self.optional_results = optional_results(runs, scored, settings.inference.paraphrases)
        # {reference with human annotations: options of its rule}, and the modules that read references
        self.references = reference_options(settings)
        formats = {reference.format for reference in settings.agreement.references.values()}
        self.reference_formats = sorted(f"annotations.{name}" for name in formats)
        self.explain = read_explain_request(config, Path("results"))  # the request of `snakemake explain`


def reference_options(settings: Settings) -> dict[str, dict]:
    """Return {reference of the setting ``agreement.references``: options of its rule}.
    If the setting is empty, the ground truth of the embedded cohort is the reference "painted"."""
    references = settings.agreement.references
    if not references and settings.cohort.source == "embedded":
        truth = {"format": "painted", "path": EMBEDDED_TRUTH, "classes": {}, "image_id": "{stem}", "name": "painted"}
        return {"painted": truth}
    return {name: reference.as_dict() | {"name": name} for name, reference in references.items()}


def find_sheets(key: str, names: Sequence[str]) -> list[str]:
    """Return the files that the setting ``key`` names. For a folder, return its CSV files.
    ``names``: value of the setting. Raises UserError for a missing file or a folder without CSV files."""
    sheet_paths = []
    for name in names:
        path = Path(name)
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{key}: the folder {name!r} holds no .csv file: correct the path")
        sheet_paths += [str(existing_file(key, str(file))) for file in files]
    return sheet_paths


def optional_results(runs: Collection[str], scored: Collection[str], reworded: bool) -> list[str]:
    """Return the results that the page shows if they exist. `snakemake` without a target does not make them.

    ``runs``: names of ``training.runs``. ``scored``: models that ILS evaluates. ``reworded``: whether these models
    also answer paraphrased instructions.
    """
    files = [f"results/{folder}/{name}" for folder, names in OPTIONAL_RESULTS.items() for name in names]
    files += ["results/evaluation/paraphrases.tsv"] if reworded else []
    files += [f"results/evaluation/{name}/pairs.parquet" for name in scored]
    return files + [f"results/training/{name}/curves.png" for name in runs]


def release_options(settings: Settings, options: dict[str, dict]) -> dict[str, dict]:
    """Return {stage: options} of the rules of a release. ``options``: {stage: options} of all other stages."""
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
    """Return settings in which every file, folder, web address and e-mail address is replaced by "".
    ``value``: a setting or nested settings. ``name``: the key of ``value``."""
    if isinstance(value, dict):
        return {key: without_paths(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner, name) for inner in value]
    if isinstance(value, str) and (name in PATH_KEYS or PATH_PATTERN.search(value) or Path(value).is_absolute()):
        return ""
    return value


def read_environments(engines: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {environment: package versions from its file in ``envs/``} for the stages that lead to a dataset.
    ``engines``: {stage: its engine}."""
    pins_by_environment = {}
    for stage in STAGES:
        files = [ENVS / f"{name}.yaml" for name in (f"{stage}-{engines.get(stage)}", stage)]
        if file := next((path for path in files if path.is_file()), None):
            dependencies = yaml.safe_load(file.read_text(encoding="utf-8"))["dependencies"]
            pip_pins = next((part["pip"] for part in dependencies if isinstance(part, dict)), [])
            conda_pins = [part for part in dependencies if isinstance(part, str) and part != "pip"]
            pins_by_environment[file.stem] = conda_pins + pip_pins
    return pins_by_environment
