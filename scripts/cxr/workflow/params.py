"""Convert the settings to the options of each stage: plain Python values, and only those that the stage depends on."""

from collections.abc import Iterable
from typing import get_args

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import existing_file, existing_folder
from cxr.base.secrets import read_secret
from cxr.base.settings import Section
from cxr.ils.dataset.settings import PairSettings
from cxr.ils.evaluation.settings import FILE_ADAPTERS
from cxr.ils.inference.settings import AnswerSettings
from cxr.ils.settings import PromptSettings, ReportLogic
from cxr.imaging.cohort.settings import DEFAULT_SHARDS, EMBEDDED_SHARDS
from cxr.reporting.settings import JPEG_QUALITY
from cxr.workflow.models import check_models, model_options
from cxr.workflow.plan_reporting import release_options
from cxr.workflow.plan_semisyn import semisyn_options
from cxr.workflow.settings import Settings

READING_KEYS = ("sections", "section_overrides", "scrub", "max_characters")
"""Options of the stage ``reports`` that decide which text of a report is read, whatever the engine."""
DECODING_KEYS = ("window", "percentiles", "burned_in")
"""Options of the stage ``frames`` that say how an image file is decoded."""
ENGINE_STAGES = ("reports", "organs", "anomaly", "anatomy", "boxes", "paraphrase", "training")
"""Stages that offer a choice of engines, which are alternative implementations of the stage."""
REQUEST_KEYS = ("image", "instruction", "questions", "run", "study")
"""Keys of ``--config`` that are not settings but inputs of the targets ``predict``, ``vlm_ask`` and ``explain``."""
EMBEDDED_MANIFEST = "results/phantom/manifest.csv"


def stage_options(settings: Settings) -> dict[str, dict]:
    """Return {stage: options}. A rule passes them as params. Its job makes the object ``options`` from them."""
    plain = settings.as_dict()
    options = _image_options(settings, plain) | _report_options(settings, plain) | _ils_options(settings, plain)
    options |= _page_options(settings, plain) | _review_options(plain) | semisyn_options(settings.semisyn, plain)
    return options | release_options(settings, options)


def _pick(section: dict, names: Iterable[str]) -> dict:
    return {name: section[name] for name in names}


def _image_options(settings: Settings, plain: dict) -> dict[str, dict]:
    seed, cohort, burned_in = plain["seed"], plain["cohort"] | {"seed": plain["seed"]}, plain["privacy"]["burned_in"]
    cohort["shards"] = cohort["shards"] or DEFAULT_SHARDS
    if settings.cohort.source == "embedded":
        shards = plain["cohort"]["shards"] or EMBEDDED_SHARDS
        cohort |= {"source": "manifest", "manifest": EMBEDDED_MANIFEST, "shards": shards}
        burned_in = "keep"  # its images have no burned-in text
    frames = plain["frames"] | {"burned_in": burned_in}
    return {
        "phantom": plain["phantom"] | {"seed": seed},
        "cohort": cohort,
        "frames": frames,
        "decoding": _pick(frames, DECODING_KEYS),
        "organs": engine_options(settings.organs),
        "anomaly": engine_options(settings.anomaly) | ({"seed": seed} if settings.anomaly.engine == "radedit" else {}),
        "anatomy": engine_options(settings.anatomy),
        "boxes": engine_options(settings.boxes),
    }


def _report_options(settings: Settings, plain: dict) -> dict[str, dict]:
    reports = plain["reports"].copy()
    llm = reports.pop("llm")
    if reports["sections"] == "auto":
        reports["sections"] = "mimic" if plain["cohort"]["source"] == "mimic" else "tolerant"
    reports["scrub"] = plain["privacy"]["texts"] == "scrub"
    structuring = model_options(settings, "reports.llm.structuring", llm["structuring"])
    if reports["engine"] == "both":
        structuring["rules_first"] = reports
    return {
        "reports": reports,
        "reports_read": {
            "engine": reports["engine"],
            "withheld": text_withheld(plain),
            "least_subjects": plain["privacy"]["least_subjects"],
        },
        "structuring": structuring | _pick(reports, READING_KEYS),
        "mapping": model_options(settings, "reports.llm.mapping", llm["mapping"]),
    }


def _ils_options(settings: Settings, plain: dict) -> dict[str, dict]:
    seed, dataset, training = plain["seed"], plain["dataset"], plain["training"]
    paraphrase = plain["paraphrase"].copy()
    llm = paraphrase.pop("llm")
    paraphraser = model_options(settings, "paraphrase.llm", llm) if paraphrase["engine"] == "vllm" else {}
    recipe = engine_options(settings.training)
    del recipe["runs"]
    # a model answers in the number type (dtype) of its training; split and persona are wildcards of the rules
    asking = {"dtype": training[training["engine"]]["dtype"], "persona": "", "seed": seed}
    return {
        "masks": _pick(dataset, ReportLogic.declared()),
        "dataset": _pick(dataset, PairSettings.declared()) | {"seed": seed},
        "layout": {"pixels": dataset["layout_pixels"]},
        "imported": {"images": dataset["mimic_ils_images"]},
        "paraphrase": paraphrase | {"language_model": paraphraser},
        "training": recipe | {"seed": seed},
        "inference": _pick(training, PromptSettings.declared())
        | _pick(plain["inference"], AnswerSettings.declared())
        | asking,
        "evaluation": {"size": plain["evaluation"]["size"], "replicates": plain["replicates"], "seed": seed},
    }


def _page_options(settings: Settings, plain: dict) -> dict[str, dict]:
    """Return {stage: options} of tables, figures, pages, the threshold sweep and the comparison with annotations."""
    seed, figures = plain["seed"], plain["figures"]
    dpi, synthetic = {"dpi": figures["dpi"]}, settings.cohort.source == "embedded"
    thresholds, grid = settings.thresholds, settings.thresholds.grid
    sets = {name: threshold_set.as_dict() for name, threshold_set in thresholds.all_sets().items()}
    axes = [{"part": part, "tau": tau, "values": values} for part, tau, values in grid.axes()]
    return {
        "counts": _pick(plain["dataset"], ("global_share", "opacity_inference_share")),
        "figures": figures | {"quality": JPEG_QUALITY},
        "page": plain["page"] | {"seed": seed, "withheld": text_withheld(plain), "quality": JPEG_QUALITY},
        "page_radvlm": {"synthetic": synthetic and plain["radvlm"]["sources"]["use"] == ["own"]},
        "explain": dpi,
        "ablation": {"sets": sets, "grid": list(thresholds.grid_sets())},
        "ablation_charts": {"axes": axes, "base": sets[grid.base]} | dpi,
        "agreement": {"sets": thresholds.build},
        "agreement_scores": {"seed": seed},
    }


def _review_options(plain: dict) -> dict[str, dict]:
    """Return {stage: options} for the stages of the experts' review of ILS's pairs and of MedGround's queries."""
    review, synthetic = plain["review"], {"synthetic": plain["cohort"]["source"] == "embedded"}
    shared = {"experts": review["experts"], "seed": plain["seed"]}
    return {
        "review": shared | _pick(review, ("positives", "negatives", "jpeg_quality")) | synthetic,
        "review_merge": shared | {"unsampled": review["unsampled"]},
        "review_queries": shared | synthetic | {"form": "queries", "fewer": "draw fewer queries with review.positives"},
        "review_queries_answers": {"form": "queries", "setting": "review.sheets"},
        "review_queries_tables": shared | {"rule": review["rule"]},
    }


def cohort_options(options: dict[str, dict]) -> dict:
    """Return the cohort's options without ``manifest``. ``options``: {stage: its options} of all stages.
    The manifest may be another rule's output, so the cohort's rule lists the manifest as an input instead."""
    return {key: value for key, value in options["cohort"].items() if key != "manifest"}


def text_withheld(plain: dict) -> bool:
    """Return whether pages must not quote reports, as ``release.withhold`` decides. ``plain``: all settings.
    Reports of the embedded synthetic cohort may always be quoted."""
    return plain["cohort"]["source"] != "embedded" and "report_text" in plain["release"]["withhold"]


def engine_options(section: Section) -> dict:
    """Return the settings of a stage as a dict, without the sections of the engines that are not chosen."""
    engines = get_args(type(section).declared()["engine"][0])
    values = section.as_dict()
    sections = [name for name in engines if isinstance(values.get(name), dict)]
    return section.as_dict(without=[name for name in sections if name != values["engine"]])


def check_files(settings: Settings, image: str) -> None:
    """Raise UserError if the settings of training, references, release, evaluation or models name a missing file.
    ``image``: path of the image for the target ``predict``, which is checked too, or ""."""
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
