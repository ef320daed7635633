"""Convert the settings to the options of each stage: builtins, and only the keys that the stage depends on."""

from typing import get_args

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import existing_file, existing_folder
from cxr.base.secrets import read_secret
from cxr.base.settings import Section
from cxr.ils.dataset.settings import PairSettings
from cxr.ils.evaluation.settings import FILE_ADAPTERS, ScoringSettings
from cxr.ils.inference.settings import AnswerSettings
from cxr.ils.settings import PromptSettings, ReportLogic
from cxr.imaging.cohort.settings import DEFAULT_SHARDS, EMBEDDED_SHARDS
from cxr.workflow.models import check_models, model_options
from cxr.workflow.plan_reporting import release_options
from cxr.workflow.plan_semisyn import semisyn_options
from cxr.workflow.settings import Settings

READING_KEYS = ("sections", "section_overrides", "scrub", "max_characters")
"""Options of the stage ``reports`` that decide which text every engine reads."""
ENGINE_STAGES = ("reports", "organs", "anomaly", "anatomy", "boxes", "paraphrase", "training")
"""The stages with a choice of engines."""
SAME_TUPLES = {"both": "vllm"}
"""{report engine: the engine whose tuples it uses}: ``both`` only compares them, so it reruns nothing."""
REVIEW_PAGE_KEYS = ("experts", "positives", "negatives", "seed", "jpeg_quality")
"""Keys of the section ``review`` that the experts' pages depend on."""
REVIEW_MERGE_KEYS = ("experts", "unsampled", "replicates", "seed")
"""Keys of it that the merge of the sheets depends on."""
REQUEST_KEYS = ("image", "instruction", "questions", "run", "study")
"""Keys of --config that are requests of `snakemake predict`, `vlm_ask` and `explain`, not settings."""
EMBEDDED_MANIFEST = "results/phantom/manifest.csv"


def _burned_in(plain: dict) -> str:
    """Return what becomes of burned-in text; the embedded cohort has none."""
    return "keep" if plain["cohort"]["source"] == "embedded" else plain["privacy"]["burned_in"]


def stage_options(settings: Settings) -> dict[str, dict]:
    """Return {stage: options}: the params of the stage's rule, the fields of its options' class."""
    plain = settings.as_dict()
    seed, dataset = plain["seed"], plain["dataset"]
    synthetic = settings.cohort.source == "embedded"
    cohort = plain["cohort"] | {"seed": seed}
    anomaly_seed = {"seed": seed} if settings.anomaly.engine == "radedit" else {}
    reports = plain["reports"]
    llm = reports.pop("llm")
    structuring = model_options("reports.llm.structuring", llm | llm["structuring"], seed)
    reports["engine"] = SAME_TUPLES.get(reports["engine"], reports["engine"])
    if reports["sections"] == "auto":
        reports["sections"] = "mimic" if cohort["source"] == "mimic" else "tolerant"
    reports["scrub"] = plain["privacy"]["texts"] == "scrub"
    reading = {name: reports[name] for name in READING_KEYS}
    if synthetic:
        cohort |= {"source": "manifest", "manifest": EMBEDDED_MANIFEST}
    cohort["shards"] = cohort["shards"] or (EMBEDDED_SHARDS if synthetic else DEFAULT_SHARDS)
    options = (
        {
            "phantom": plain["phantom"] | {"seed": seed},
            "cohort": cohort,
            "frames": plain["frames"] | {"burned_in": _burned_in(plain)},
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
            "anomaly": engine_options(settings.anomaly) | anomaly_seed,
            "anatomy": engine_options(settings.anatomy),
            "boxes": engine_options(settings.boxes),
            "masks": {name: dataset[name] for name in ReportLogic.declared()},
            "dataset": {name: dataset[name] for name in PairSettings.declared()} | {"seed": seed},
            "layout": {"pixels": dataset["layout_pixels"]},
            "imported": {"images": dataset["mimic_ils_images"]},
            "counts": {name: dataset[name] for name in ("global_share", "opacity_inference_share")},
            "figures": plain["figures"],
            "page": plain["page"]
            | {"seed": seed, "withheld": text_withheld(plain)}
            | {name: plain["figures"][name] for name in ("dpi", "quality")},
            "page_radvlm": {
                "synthetic": synthetic and plain["radvlm"]["sources"]["use"] == ["own"],
            },
            "page_costs": {"dpi": plain["figures"]["dpi"], "synthetic": synthetic},
            "explain": {"dpi": plain["figures"]["dpi"]},
            "paraphrase": _paraphrase(plain),
            "training": _training(settings) | {"seed": seed},
            "inference": _inference(plain),
            "evaluation": {name: plain["evaluation"][name] for name in ScoringSettings.declared()} | {"seed": seed},
            "review": {name: plain["review"][name] for name in REVIEW_PAGE_KEYS} | {"synthetic": synthetic},
            "review_merge": {name: plain["review"][name] for name in REVIEW_MERGE_KEYS},
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
    return {
        "review_queries": pages | {"form": "queries", "fewer": "draw fewer queries with review.positives"},
        "review_queries_answers": {"form": "queries", "setting": "review.sheets"},
        "review_queries_tables": {name: section[name] for name in ("items", "experts", "rule", "replicates", "seed")},
    }


def text_withheld(plain: dict) -> bool:
    """Whether pages must not quote reports (``release.withhold``); the embedded cohort's may always be quoted."""
    return plain["cohort"]["source"] != "embedded" and "report_text" in plain["release"]["withhold"]


def engine_options(section: Section) -> dict:
    """Return the settings of a stage with engines, without those of the engines that are not chosen."""
    engines = get_args(type(section).declared()["engine"][0])
    values = section.as_dict()
    sections = [name for name in engines if isinstance(values.get(name), dict)]
    return section.as_dict(without=[name for name in sections if name != values["engine"]])


def _measured(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options of the stages that measure others: the sweep over thresholds, the agreement."""
    return _ablation(settings, plain) | _agreement(settings, plain)


def _agreement(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options for comparing one reference, for scoring all, and for the figures."""
    section = plain["agreement"]
    comparing = {name: section[name] for name in ("box_iou", "same_box")}
    return {
        "agreement": comparing | {"sets": settings.thresholds.build},
        "agreement_scores": {"replicates": section["replicates"], "seed": plain["seed"]},
        "agreement_charts": {"dpi": plain["figures"]["dpi"], "iou": section["box_iou"][0]},
    }


def _ablation(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return the options of the table of all threshold sets and grid points, and of its figures."""
    thresholds, grid = settings.thresholds, settings.thresholds.grid
    sets = {name: threshold_set.as_dict() for name, threshold_set in thresholds.all_sets().items()}
    axes = [{"part": part, "tau": tau, "values": values} for part, tau, values in grid.axes()]
    return {
        "ablation": {"sets": sets, "grid": list(thresholds.grid_sets())},
        "ablation_charts": {"axes": axes, "base": sets[grid.base], "dpi": plain["figures"]["dpi"]},
    }


def _training(settings: Settings) -> dict:
    """Return what a training depends on: the recipe of the chosen engine, and none of the runs."""
    return {name: value for name, value in engine_options(settings.training).items() if name != "runs"}


def _paraphrase(plain: dict) -> dict:
    """Return the personas, the number of paraphrases, and the settings that answers of the engine vllm depend on."""
    section = dict(plain["paraphrase"])
    llm = section.pop("llm")
    model = model_options("paraphrase.llm", llm, plain["seed"]) if section["engine"] == "vllm" else {}
    return section | {"language_model": model}


def _inference(plain: dict) -> dict:
    """Return how a model is asked, in the number type of its training; split and persona are wildcards."""
    training = plain["training"]
    asking = {name: plain["inference"][name] for name in AnswerSettings.declared()}
    asking |= {"dtype": training[training["engine"]]["dtype"], "persona": "", "seed": plain["seed"]}
    return {name: training[name] for name in PromptSettings.declared()} | asking


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
        read_secret("release.salt", settings.release.salt)
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
