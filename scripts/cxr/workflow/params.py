"""Convert the settings to each rule's params: builtins, and for each stage only its own keys."""

from collections.abc import Collection
from pathlib import Path
from typing import get_args

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.secrets import secret
from cxr.base.settings import Section
from cxr.workflow.models_there import check_models
from cxr.workflow.params_semisyn import semisyn_options
from cxr.workflow.release_facts import release_options
from cxr.workflow.settings import MIMIC_ILS, Settings
from cxr.workflow.settings.inputs import DEFAULT_SHARDS, EMBEDDED_SHARDS
from cxr.workflow.settings.rosalia import BASE, FILE_ADAPTERS
from cxr.workflow.sheets import sheet_files

DATASET = ("ctr_negative_max", "unknown_words_max", "global_share", "opacity_inference_share", "kinds", "one_answer")
"""Keys of the section ``dataset`` that no mask depends on, and the two keys that both stages use."""
READING = ("sections", "section_overrides", "scrub", "max_characters")
"""Options of the stage ``reports`` that decide which text every engine reads."""
ENGINE_STAGES = ("reports", "organs", "anomaly", "anatomy", "boxes", "paraphrase", "training")
"""The stages with a choice of engines."""
ENGINE_SECTIONS = ("chexmask", "radedit", "cxas", "ultralytics", "scaled_yolov4", "lite", "rosalia")
"""Sections of a stage's settings that belong to the engine of the same name."""
SAME_TUPLES = {"both": "vllm"}
"""Report engines that use another engine's tuples: ``both`` only compares them, so it re-runs nothing."""
PICTURES = ("conversation", "max_length", "fit", "published_mismatch")
"""Keys of the section ``training`` that a model must also be asked with."""
LANGUAGE_MODEL = (
    "transport", "model", "revision", "context", "max_tokens", "dtype", "temperature", "retries", "retry_temperature"
)  # fmt: skip
"""Keys that a language model's answer depends on."""
PAGES = ("experts", "positives", "negatives", "seed", "jpeg_quality")
"""Keys of the section ``review`` that the experts' pages depend on."""
MERGE = ("experts", "unsampled", "interval", "replicates", "seed")
"""Keys of it that the merge of the sheets depends on."""
ASKED = ("image", "instruction", "questions", "run", "study")
"""Keys of `snakemake predict`, `vlm_ask` and `explain` with --config, which are not settings."""
EMBEDDED_MANIFEST = "results/phantom/manifest.csv"
EMBEDDED_TRUTH = "results/phantom/truth.h5"


def decoding(options: dict[str, dict]) -> dict:
    """Return the settings of frames that say how an image file is decoded. ``options``: those of the stages."""
    return {name: options["frames"][name] for name in ("max_pixels", "window", "percentiles", "burned_in")}


def _burned_in(plain: dict) -> str:
    """Return what becomes of burned-in text; the embedded cohort has none."""
    return "keep" if plain["cohort"]["source"] == "embedded" else plain["privacy"]["burned_in"]


def stage_options(settings: Settings) -> dict[str, dict]:
    """Return {stage: options}: the params of the stage's rule, the fields of its options' class."""
    plain = settings.as_dict()
    plain["training"].pop("runs")  # decides which rules there are, not what a rule does
    for files in ("predictions", "reviewed"):
        plain["evaluation"].pop(files)
    seed, masks, dataset = plain["seed"], plain["masks"], plain["dataset"]
    synthetic = settings.cohort.source == "embedded"
    logic = {name: dataset[name] for name in ("predicted_other", "blocking", "kinds", "joint_location", "one_answer")}
    units = logic | {name: dataset[name] for name in ("weak_hedges", "global_requires_definitive")}
    cohort = plain["cohort"] | {"seed": seed}
    reports = plain["reports"]
    llm = reports.pop("llm")
    structuring = model_options("reports.llm.structuring", llm | llm["structuring"], seed)
    reports["engine"] = SAME_TUPLES.get(reports["engine"], reports["engine"])
    if reports["sections"] == "auto":
        reports["sections"] = "mimic" if cohort["source"] == "mimic" else "tolerant"
    reports["scrub"] = plain["privacy"]["texts"] == "scrub"
    reading = {name: reports[name] for name in READING}
    del cohort["split"]
    per_study, cohort["split_shares"] = cohort.pop("per_study"), settings.cohort.split.shares()
    if synthetic:
        cohort |= {"source": "manifest", "manifest": EMBEDDED_MANIFEST}
        cohort["shards"] = cohort["shards"] or EMBEDDED_SHARDS
    cohort["shards"] = cohort["shards"] or DEFAULT_SHARDS
    options = (
        {
            "phantom": plain["phantom"] | {"seed": seed},
            "cohort": cohort,
            "frames": plain["frames"] | {"per_study": per_study, "burned_in": _burned_in(plain)},
            "reports": reports,
            "reports_read": {
                "nothing_share": reports["nothing_share"],
                "engine": reports["engine"],
                "withheld": text_withheld(plain),
                "least_subjects": plain["privacy"]["least_subjects"],
            },
            "structuring": structuring | reading,
            "mapping": model_options("reports.llm.mapping", llm | llm["mapping"], seed),
            "organs": engine_options(settings.organs),
            "anomaly": _stage("anomaly", plain, seed=seed),
            "anatomy": _stage("anatomy", plain),
            "boxes": _stage("boxes", plain),
            "masks": masks | units,
            "dataset": {name: dataset[name] for name in DATASET} | {"seed": seed},
            "layout": {"pixels": dataset["layout_pixels"]},
            "imported": {"images": dataset["mimic_ils_images"]},
            "counts": {name: dataset[name] for name in ("global_share", "opacity_inference_share")},
            "tables": {"min_px": plain["tables"]["truth_min_px"]},
            "figures": plain["figures"] | {"seed": seed},
            "page": plain["page"]
            | {"seed": seed, "withheld": text_withheld(plain)}
            | {name: plain["figures"][name] for name in ("dpi", "quality")},
            "page_radvlm": {
                "synthetic": synthetic and plain["radvlm"]["sources"]["use"] == ["own"],
            },
            "page_costs": {"dpi": plain["figures"]["dpi"], "synthetic": synthetic},
            "explain": {"dpi": plain["figures"]["dpi"]},
            "paraphrase": _paraphrase(plain),
            "training": _stage("training", plain) | {"seed": seed},
            "inference": _inference(plain),
            "evaluation": plain["evaluation"] | {"seed": seed},
            "review": {name: plain["review"][name] for name in PAGES} | {"synthetic": synthetic},
            "review_merge": {name: plain["review"][name] for name in MERGE},
        }
        | _reviewed_queries(plain["review"], synthetic)
        | _measured(settings, plain)
        | semisyn_options(settings.semisyn, plain)
    )
    return options | release_options(settings, options)


def cohort_options(options: dict[str, dict]) -> dict:
    """Return the options of the cohort's rule, of those of all stages.

    The manifest may be another rule's output, so the rule names it among its inputs.
    """
    return {key: value for key, value in options["cohort"].items() if key != "manifest"}


def _reviewed_queries(section: dict, synthetic: bool) -> dict[str, dict]:
    """Return the options of the pages, sheets and tables of MedGround's queries."""
    pages = {name: section[name] for name in ("experts", "seed")} | {"synthetic": synthetic}
    merging = {name: section[name] for name in ("rule", "interval", "replicates", "seed")}
    return {
        "review_queries": pages | {"form": "queries", "fewer": "draw fewer queries with review.positives"},
        "review_queries_answers": {"form": "queries", "setting": "review.sheets"},
        "review_queries_tables": merging | {"experts": len(section["experts"])},
    }


def text_withheld(plain: dict) -> bool:
    """Whether pages must not quote reports (``release.withhold``); the embedded cohort's may always be quoted."""
    return plain["cohort"]["source"] != "embedded" and "report_text" in plain["release"]["withhold"]


def engine_options(section: Section) -> dict:
    """Return the settings of a stage with engines, without those of the engines that are not chosen."""
    engines = get_args(type(section).declared()["engine"][0])
    chosen = section.as_dict()["engine"]
    return section.as_dict(without=[name for name in engines if name != chosen])


def _stage(name: str, plain: dict, **shared: object) -> dict:
    """Return a stage's own keys, with the chosen engine's section as ``own``, and the ``shared`` keys."""
    keys = {key: value for key, value in plain[name].items() if key not in ENGINE_SECTIONS}
    section = plain[name].get(keys["engine"]) if keys["engine"] in ENGINE_SECTIONS else None
    return keys | {"own": section | shared if section else {}}


def _measured(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options of the stages that measure others: the sweep over thresholds, the agreement."""
    return _ablation(settings, plain) | _agreement(settings, plain)


def _agreement(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options for comparing one reference, for scoring all, and for the figures."""
    section = plain["agreement"]
    comparing = ("box_iou", "same_box", "anomaly_steps", "confidence_steps")
    return {
        "agreement": {name: section[name] for name in comparing} | {"sets": settings.thresholds.build},
        "agreement_scores": {name: section[name] for name in ("replicates", "interval")} | {"seed": plain["seed"]},
        "agreement_charts": {"dpi": plain["figures"]["dpi"], "iou": section["box_iou"][0]},
    }


def _ablation(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options of the table of all threshold sets and grid points, and of its figures."""
    thresholds, grid = settings.thresholds, settings.thresholds.grid
    sets = {name: threshold_set.as_dict() for name, threshold_set in thresholds.all_sets().items()}
    axes = [{"part": part, "tau": tau, "values": values} for part, tau, values in grid.axes()]
    return {
        "ablation": plain["ablation"] | {"sets": sets, "grid": list(thresholds.grid_sets())},
        "ablation_charts": {"axes": axes, "base": sets[grid.base], "dpi": plain["figures"]["dpi"]},
    }


def _paraphrase(plain: dict) -> dict:
    """Return the personas, the number of paraphrases, and the settings that answers of the engine vllm depend on."""
    section = dict(plain["paraphrase"])
    llm = section.pop("llm")
    return section | {"own": model_options("paraphrase.llm", llm, plain["seed"]) if section["engine"] == "vllm" else {}}


def _inference(plain: dict) -> dict:
    """Return how a model is asked, in the number type of its training; split and persona are wildcards."""
    training, jobs = plain["training"], ("split", "paraphrases")  # these decide which jobs there are
    asking = {key: value for key, value in plain["inference"].items() if key not in jobs}
    asking |= {"dtype": training[training["engine"]]["dtype"], "persona": "", "seed": plain["seed"]}
    return {name: training[name] for name in PICTURES} | asking


def model_options(key: str, llm: dict, seed: int) -> dict:
    """Return the settings of the section ``key`` that a language model's answer depends on, without its execution."""
    return {name: llm[name] for name in LANGUAGE_MODEL} | {"key": key, "seed": seed}


def data(settings: Settings, shards: list[str]) -> dict[str, dict]:
    """Return {set: index, masks, frames, pictures}: the files that its pairs use; pictures are a release's images."""
    folder_by_set = {name: f"results/masks/{name}" for name in settings.thresholds.all_sets()}
    files_by_set = {
        name: {
            "index": f"{folder}/index.parquet",
            "masks": [f"{folder}/{shard}.h5" for shard in shards],
            "frames": [f"results/frames/{shard}.h5" for shard in shards],
            "pictures": [],
        }
        for name, folder in folder_by_set.items()
    }
    if settings.dataset.mimic_ils:
        folder = f"results/masks/{MIMIC_ILS}"
        files = {"index": f"{folder}/index.parquet", "masks": [f"{folder}/{MIMIC_ILS}.h5"], "frames": []}
        files_by_set[MIMIC_ILS] = files | {"pictures": f"results/dataset/{MIMIC_ILS}/pictures.tsv"}
    return files_by_set


def references(settings: Settings) -> dict[str, dict]:
    """Return {reference: its rule's options}; by default the embedded cohort's truth is the only reference."""
    options_by_reference = {
        name: reference.as_dict() | {"name": name} for name, reference in settings.agreement.references.items()
    }
    if not options_by_reference and settings.cohort.source == "embedded":
        truth = {"format": "painted", "path": EMBEDDED_TRUTH, "classes": {}, "image_id": "{stem}"}
        options_by_reference = {"painted": truth | {"name": "painted"}}
    return options_by_reference


def formats(settings: Settings) -> list[str]:
    """Return the modules that read the references, each imported by the name of its format."""
    return sorted({f"annotations.{reference.format}" for reference in settings.agreement.references.values()})


PUBLISHED_BY = "rosalia"
"""Engine of ``training`` whose settings are used to ask a published model."""
OWN = "lite"
"""The one of a run's ``weights`` that is part of this repository, and its engine: no rule downloads it."""
BESIDE = {"lisa": "LISA-7B"}
"""Published models with their own scores in the paper; all other models are shown beside ROSALIA's."""


def runs(settings: Settings) -> dict[str, dict]:
    """Return {run: its rules' options}.

    train, thresholds, test: the lines that it is trained on, and the sets of its dataset and its test; trained: whether
    it is trained; engine: of ``training``; weights: the model that it is or starts from; asking: options of the stage
    inference that depend on the run; beside: the paper's model whose scores are shown beside its own; wordings: the
    paraphrases that it is also trained on, [] for none.
    """
    options_by_run = {}
    for name, run in settings.training.named_runs().items():
        lines = run.lines or f"results/dataset/{run.thresholds}/train.jsonl"
        without = OWN if run.weights == OWN else PUBLISHED_BY
        engine = settings.training.engine if run.trained else without
        options_by_run[name] = {
            "train": lines,
            "thresholds": run.thresholds,
            "test": run.test or run.thresholds,
            "wordings": wordings_of(run.thresholds) if run.paraphrases else [],
            "trained": run.trained,
            "engine": engine,
            "weights": run.weights,
            "asking": {"dtype": getattr(settings.training, engine).dtype},
            "beside": "ROSALIA" if run.trained else BESIDE.get(run.weights, "ROSALIA"),
        }
    return options_by_run


def starts(
    options_by_run: dict[str, dict], files: dict[str, str], published: dict[str, str]
) -> dict[str, dict[str, str]]:
    """Return {run: files that its model is made from}, by the names of the engine's ``INPUTS``.

    ``options_by_run``: of :func:`runs`; ``files``: the engine's inputs; ``published``: the inputs of a published model.
    """
    files_by_run = {}
    for name, run in options_by_run.items():
        engine_files = files if run["trained"] else published
        fetched = {"lisa": f"results/weights/{run['weights']}"} if run["weights"] else {}
        files_by_run[name] = {} if run["weights"] == OWN else engine_files | fetched
    return files_by_run


def wordings_of(thresholds: str) -> str:
    """Return the file of the paraphrases of a dataset's instructions."""
    return f"results/paraphrase/{thresholds}/wordings.jsonl"


def check_files(settings: Settings, image: str) -> None:
    """Raise UserError for a missing file or folder in the settings of the model half or the whole run.

    ``image``: the image of `snakemake predict`, or "".
    """
    for name, run in settings.training.runs.items():
        if run.lines:
            existing_file(f"training.runs.{name}.lines", run.lines)
    if settings.dataset.mimic_ils:
        existing_folder("dataset.mimic_ils", settings.dataset.mimic_ils)
        existing_folder("dataset.mimic_ils_images", settings.dataset.mimic_ils_images)
    for name, reference in settings.agreement.references.items():
        existing = existing_folder if reference.format in FOLDERS else existing_file
        existing(f"agreement.references.{name}.path", reference.path)
    if settings.release.salt and "ids" in settings.release.kinds():
        secret("release.salt", settings.release.salt)
    if settings.release.test and not settings.release.test.startswith("results/"):  # a rule makes such a file
        for name in settings.thresholds.build:
            existing_file("release.test", settings.release.test.replace("{thresholds}", name))
    if settings.evaluation.reviewed:
        existing_file("evaluation.reviewed", settings.evaluation.reviewed)
    for name, prediction in settings.evaluation.predictions.items():
        if prediction.path:
            existing = existing_file if prediction.adapter in FILE_ADAPTERS else existing_folder
            existing(f"evaluation.predictions.{name}.path", prediction.path)
    check_models(settings)
    if image:
        existing_file("image", image)
    if settings.compute.container and "://" not in settings.compute.container:
        existing_file("compute.container", settings.compute.container)


def sheets(settings: Settings) -> list[str]:
    """Return the files of ``review.sheets``. Raises UserError for missing ones."""
    return sheet_files("review.sheets", settings.review.sheets)


def evaluated(settings: Settings) -> dict[str, dict]:
    """Return {run or other model: test, predictions, masks}: the set of its test split, and its predictions."""
    split = settings.inference.split
    files_by_model = {}
    for name, run in runs(settings).items():
        stem = f"results/inference/{name}/{split}"
        files_by_model[name] = {"test": run["test"], "predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}
        files_by_model[name]["beside"] = run["beside"]
    for name, prediction in settings.evaluation.predictions.items():
        files_by_model[name] = {"test": prediction.test, "beside": name} | _predictions(
            name, prediction.adapter, prediction.path
        )
    return files_by_model


def _predictions(name: str, adapter: str, path: str) -> dict:
    if adapter == "jsonl":  # our own format; masks may be beside it, or named by its lines
        masks_path = Path(path).with_suffix(".h5")
        return {"predictions": path, "masks": str(masks_path) if masks_path.is_file() else []}
    stem = f"results/evaluation/{name}/predictions"
    return {"predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}


def read_request(config: dict, training_runs: dict, vlm_runs: Collection[str] = ()) -> dict:
    """Return the keys of `snakemake predict --config`: image, instructions, run ("" for one of ``vlm_runs``).

    They are not settings. The default run is `base`, which needs no training, or else the first of ``training_runs``.
    ``vlm_runs``: runs that another target asks. Raises UserError for an unknown run.
    """
    instruction, run = (
        config.get("instruction", []),
        str(config.get("run") or (BASE if BASE in training_runs else next(iter(training_runs)))),
    )
    if run not in training_runs and run not in vlm_runs:
        choices = f"{', '.join(training_runs)} (training.runs)" + (
            f" and {', '.join(vlm_runs)} (vlm.tuning.runs)" if vlm_runs else ""
        )
        raise UserError(f"run is {run!r}, but the runs are {choices}")
    instructions = [instruction] if isinstance(instruction, str) else list(instruction)
    return {
        "image": str(config.get("image", "")),
        "instructions": instructions,
        "run": run if run in training_runs else "",
    }
