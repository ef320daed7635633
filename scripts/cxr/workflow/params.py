"""From the settings to what each rule passes on: plain builtins, and no stage another stage's keys."""

from pathlib import Path

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.secrets import secret
from cxr.base.vocabulary import SPLITS
from cxr.workflow.release_facts import release_options
from cxr.workflow.settings import MIMIC_ILS, Settings
from cxr.workflow.settings.inputs import DEFAULT_SHARDS, EMBEDDED_SHARDS
from cxr.workflow.settings.rosalia import FILE_ADAPTERS

DATASET = ("ctr_negative_max", "unknown_words_max", "global_share", "opacity_inference_share", "kinds", "one_answer")
"""Keys of the section ``dataset`` that no mask depends on, and the two both stages heed."""
READING = ("sections", "section_overrides", "max_characters")
"""Keys of the section ``reports`` that decide which text is read, whatever the engine."""
ENGINE_STAGES = ("reports", "organs", "anomaly", "anatomy", "boxes", "paraphrase", "training")
"""The stages with a choice of engines."""
ENGINE_SECTIONS = ("chexmask", "radedit", "cxas", "ultralytics", "scaled_yolov4", "lite", "rosalia")
"""Sections of a stage's settings that belong to the engine of that name."""
SAME_TUPLES = {"both": "vllm"}
"""Engines of the reports whose tuples are another's: ``both`` only compares them, so that it re-runs nothing."""
PICTURES = ("conversation", "max_length", "fit", "published_mismatch")
"""Keys of the section ``training`` that a model must be asked with too."""
LANGUAGE_MODEL = (
    "transport", "model", "revision", "context", "max_tokens", "dtype", "temperature", "retries", "retry_temperature"
)  # fmt: skip
"""Keys that an answer of a language model depends on."""
PAGES = ("experts", "positives", "negatives", "seed", "jpeg_quality")
"""Keys of the section ``review`` that the experts' pages depend on."""
MERGE = ("experts", "unsampled", "interval", "replicates", "seed")
"""Keys of it that what is made of the sheets depends on."""
ASKED = ("image", "instruction", "run", "study")
"""What `snakemake predict --config` and `snakemake explain --config` take; no settings."""
EMBEDDED_MANIFEST = "results/phantom/manifest.csv"
EMBEDDED_TRUTH = "results/phantom/truth.h5"


def stage_options(settings: Settings) -> dict[str, dict]:
    """Return {stage: options}: the params of the stage's rule, the fields of its options' class."""
    plain = settings.model_dump(mode="json", by_alias=True)
    plain["training"].pop("runs")  # which rules there are, not what one of them does
    for files in ("predictions", "reviewed"):
        plain["evaluation"].pop(files)
    seed, masks, dataset = plain["seed"], plain["masks"], plain["dataset"]
    logic = {name: dataset[name] for name in ("predicted_other", "blocking", "kinds", "joint_location", "one_answer")}
    units = logic | {name: dataset[name] for name in ("weak_hedges", "global_requires_definitive")}
    cohort = plain["cohort"] | {"seed": seed}
    reports = plain["reports"]
    llm = reports.pop("llm")
    structuring = _model("reports.llm.structuring", llm | llm["structuring"], seed)
    reports["engine"] = SAME_TUPLES.get(reports["engine"], reports["engine"])
    if reports["sections"] == "auto":
        reports["sections"] = "mimic" if cohort["source"] == "mimic" else "tolerant"
    reading = {name: reports[name] for name in READING}
    shares, per_study = cohort.pop("split"), cohort.pop("per_study")
    cohort["split_shares"] = [shares[name] for name in SPLITS]
    if cohort["source"] == "embedded":
        cohort |= {"source": "manifest", "manifest": EMBEDDED_MANIFEST}
        cohort["shards"] = cohort["shards"] or EMBEDDED_SHARDS
    cohort["shards"] = cohort["shards"] or DEFAULT_SHARDS
    options = {
        "phantom": plain["phantom"] | {"seed": seed},
        "cohort": cohort,
        "frames": plain["frames"] | {"per_study": per_study},
        "reports": reports,
        "reports_read": {
            "nothing_share": reports["nothing_share"],
            "engine": reports["engine"],
            "withheld": text_withheld(plain),
        },
        "structuring": structuring | reading,
        "mapping": _model("reports.llm.mapping", llm | llm["mapping"], seed),
        "organs": _stage("organs", plain),
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
        "page_costs": {"dpi": plain["figures"]["dpi"]},
        "explain": {"dpi": plain["figures"]["dpi"]},
        "paraphrase": _paraphrase(plain),
        "training": _stage("training", plain) | {"seed": seed},
        "inference": _inference(plain),
        "evaluation": plain["evaluation"] | {"seed": seed},
        "review": {name: plain["review"][name] for name in PAGES},
        "review_merge": {name: plain["review"][name] for name in MERGE},
    } | _measured(settings, plain)
    return options | release_options(settings, options)


def text_withheld(plain: dict) -> bool:
    """Whether pages may quote no report (``release.withhold``); those of the embedded cohort are nobody's."""
    return plain["cohort"]["source"] != "embedded" and "report_text" in plain["release"]["withhold"]


def _stage(name: str, plain: dict, **shared: object) -> dict:
    """Return a stage's own keys, and as ``own`` the section of the chosen engine alone, with ``shared`` keys."""
    keys = {key: value for key, value in plain[name].items() if key not in ENGINE_SECTIONS}
    section = plain[name].get(keys["engine"]) if keys["engine"] in ENGINE_SECTIONS else None
    return keys | {"own": section | shared if section else {}}


def _measured(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return what the stages take that measure others: the sweep over thresholds, the agreement with people."""
    return _ablation(settings, plain) | _agreement(settings, plain)


def _agreement(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return how one reference is compared, how all are scored, and how the figures are drawn."""
    section = plain["agreement"]
    comparing = ("box_iou", "same_box", "anomaly_steps", "confidence_steps")
    return {
        "agreement": {name: section[name] for name in comparing} | {"sets": settings.thresholds.build},
        "agreement_scores": {name: section[name] for name in ("replicates", "interval")} | {"seed": plain["seed"]},
        "agreement_charts": {"dpi": plain["figures"]["dpi"], "iou": section["box_iou"][0]},
    }


def _ablation(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return what the table of all threshold sets and grid points takes, and what its figures do."""
    thresholds, grid = settings.thresholds, settings.thresholds.grid
    sets = {name: chosen.model_dump() for name, chosen in thresholds.all_sets().items()}
    axes = [{"part": part, "tau": tau, "values": values} for part, tau, values in grid.axes()]
    return {
        "ablation": plain["ablation"] | {"sets": sets, "grid": list(thresholds.grid_sets())},
        "ablation_charts": {"axes": axes, "base": sets[grid.base], "dpi": plain["figures"]["dpi"]},
    }


def _paraphrase(plain: dict) -> dict:
    """Return who words how many paraphrases, and what an answer of the engine vllm depends on."""
    section = dict(plain["paraphrase"])
    llm = section.pop("llm")
    return section | {"own": _model("paraphrase.llm", llm, plain["seed"]) if section["engine"] == "vllm" else {}}


def _inference(plain: dict) -> dict:
    """Return how a model is asked, in the number type that it was trained in; split and persona are wildcards."""
    training, jobs = plain["training"], ("split", "paraphrases")  # which jobs there are, not what one does
    asking = {key: value for key, value in plain["inference"].items() if key not in jobs}
    asking |= {"dtype": training[training["engine"]]["dtype"], "persona": "", "seed": plain["seed"]}
    return {name: training[name] for name in PICTURES} | asking


def _model(key: str, llm: dict, seed: int) -> dict:
    """Return what an answer of the language model of the section ``key`` depends on; not how it is run."""
    return {name: llm[name] for name in LANGUAGE_MODEL} | {"key": key, "seed": seed}


def data(settings: Settings, shards: list[str]) -> dict[str, dict]:
    """Return {set: index, masks, frames, pictures}: the files that its pairs name; pictures are a release's images."""
    own = {name: f"results/masks/{name}" for name in settings.thresholds.all_sets()}
    found = {
        name: {
            "index": f"{folder}/index.parquet",
            "masks": [f"{folder}/{shard}.h5" for shard in shards],
            "frames": [f"results/frames/{shard}.h5" for shard in shards],
            "pictures": [],
        }
        for name, folder in own.items()
    }
    if settings.dataset.mimic_ils:
        folder = f"results/masks/{MIMIC_ILS}"
        files = {"index": f"{folder}/index.parquet", "masks": [f"{folder}/{MIMIC_ILS}.h5"], "frames": []}
        found[MIMIC_ILS] = files | {"pictures": f"results/dataset/{MIMIC_ILS}/pictures.tsv"}
    return found


def references(settings: Settings) -> dict[str, dict]:
    """Return {reference: what its rule is told of it}; without any, the embedded cohort's own truth is one."""
    found = {name: given.model_dump() | {"name": name} for name, given in settings.agreement.references.items()}
    if not found and settings.cohort.source == "embedded":
        truth = {"format": "painted", "path": EMBEDDED_TRUTH, "classes": {}, "image_id": "{stem}"}
        found = {"painted": truth | {"name": "painted"}}
    return found


def formats(settings: Settings) -> list[str]:
    """Return the modules that read the references, each imported by the name of its format."""
    return sorted({f"annotations.{one.format}" for one in settings.agreement.references.values()})


PUBLISHED_BY = "rosalia"
"""Engine of ``training`` by whose settings a published model is asked."""
BESIDE = {"lisa": "LISA-7B"}
"""Published models whose scores the paper prints under a name of their own; all else stands beside ROSALIA's."""


def runs(settings: Settings) -> dict[str, dict]:
    """Return {run: what its rules are told}.

    train, thresholds, test: the lines it is trained on, and the sets of its dataset and its test; trained: whether it
    is; engine: of ``training``; weights: the published model that it is or starts from; asking: options of the stage
    inference that depend on the run; beside: the model of the paper whose scores stand beside its own;
    wordings: the paraphrases that it is trained on too, [] for none.
    """
    found = {}
    for name, run in settings.training.named_runs().items():
        lines = run.lines or f"results/dataset/{run.thresholds}/train.jsonl"
        engine = settings.training.engine if run.trained else PUBLISHED_BY
        found[name] = {
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
    return found


def starts(known: dict[str, dict], files: dict[str, str], published: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return {run: files that its model is made of}, by the names of the engine's ``INPUTS``.

    ``known``: of :func:`runs`; ``files``: what the engine reads; ``published``: what a published model is made of.
    """
    found = {}
    for name, run in known.items():
        own = files if run["trained"] else published
        found[name] = own | ({"lisa": f"results/weights/{run['weights']}"} if run["weights"] else {})
    return found


def wordings_of(thresholds: str) -> str:
    """Return the file of the paraphrases of a dataset's instructions."""
    return f"results/paraphrase/{thresholds}/wordings.jsonl"


def check_files(settings: Settings, image: str) -> None:
    """Raise UserError for a file or folder that the model half or the whole run is given and that is not there.

    ``image``: the picture that `snakemake predict` is asked about, or "".
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
    if settings.release.test and not settings.release.test.startswith("results/"):  # that is made by a rule
        for name in settings.thresholds.build:
            existing_file("release.test", settings.release.test.replace("{thresholds}", name))
    if settings.evaluation.reviewed:
        existing_file("evaluation.reviewed", settings.evaluation.reviewed)
    for name, other in settings.evaluation.predictions.items():
        if other.path:
            existing = existing_file if other.adapter in FILE_ADAPTERS else existing_folder
            existing(f"evaluation.predictions.{name}.path", other.path)
    if image:
        existing_file("image", image)
    if settings.compute.container and "://" not in settings.compute.container:
        existing_file("compute.container", settings.compute.container)


def sheets(settings: Settings) -> list[str]:
    """Return the files of ``review.sheets``, of a folder its CSV files. Raises UserError for what is not there."""
    found = []
    for name in settings.review.sheets:
        path = Path(name)
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"review.sheets: the folder {name!r} holds no .csv file: correct the path")
        found += [str(existing_file("review.sheets", str(file))) for file in files]
    return found


def evaluated(settings: Settings) -> dict[str, dict]:
    """Return {run or other model: test, predictions, masks}: the set of its test split, and its predictions."""
    split = settings.inference.split
    found = {}
    for name, run in runs(settings).items():
        stem = f"results/inference/{name}/{split}"
        found[name] = {"test": run["test"], "predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}
        found[name]["beside"] = run["beside"]
    for name, other in settings.evaluation.predictions.items():
        found[name] = {"test": other.test, "beside": name} | _predictions(name, other.adapter, other.path)
    return found


def _predictions(name: str, adapter: str, path: str) -> dict:
    if adapter == "jsonl":  # our own format; masks may be beside it, or named by its lines
        beside = Path(path).with_suffix(".h5")
        return {"predictions": path, "masks": str(beside) if beside.is_file() else []}
    stem = f"results/evaluation/{name}/predictions"
    return {"predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}


def asked(config: dict, known: dict) -> dict:
    """Return what `snakemake predict --config` was given: image, instructions, run (the first of ``known`` if none).

    These are no settings: what is made of them depends on nothing else that is set. Raises UserError for another run.
    """
    given, run = config.get("instruction", []), str(config.get("run") or next(iter(known)))
    if run not in known:
        raise UserError(f"run is {run!r}, but the runs are {', '.join(known)} (training.runs)")
    instructions = [given] if isinstance(given, str) else list(given)
    return {"image": str(config.get("image", "")), "instructions": instructions, "run": run}
