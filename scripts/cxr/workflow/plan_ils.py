"""ILS's part of the plan of a run: the models of ``training.runs``, their data files, and the evaluated models."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cxr.base.errors import UserError
from cxr.ils.training.settings import BASE
from cxr.workflow.engine_files import num_gpus, read_declaration
from cxr.workflow.models import ModelJobs
from cxr.workflow.settings import MIMIC_ILS, Settings

PACKAGE = "cxr.ils.training"
PUBLISHED_ENGINE = "rosalia"
"""Engine of ``training`` whose settings are used to run a published model."""
BUNDLED = "lite"
"""Value of ``weights`` for the model in this repository, which no rule downloads, and also the name of its engine."""
PAPER_MODELS = {"lisa": "LISA-7B"}
"""{``weights`` of a run: model of the paper whose scores are shown beside it}. For all others this is ROSALIA."""


class IlsPlan:
    """Models and files for ILS's rules, from the settings. Paths are relative to Snakemake's working directory.
    A run is one model of ``training.runs``. Other models are those of ``evaluation.predictions``."""

    def __init__(
        self,
        settings: Settings,
        config: Mapping,
        shards: Sequence[str],
        engine_files: Mapping[str, str],
        other_rows: Mapping[str, dict],
        vlm_runs: Collection[str],
    ):
        """Derive the plan from the settings.

        ``config``: values of --config. ``engine_files``: input files of the training engine. ``other_rows``: models of
        other systems that are evaluated too, as :func:`evaluated_models` returns them. ``vlm_runs``: names of
        vision-language models.
        """
        self.runs = runs = run_options(settings)  # {run: its rules' options}, see :func:`run_options`
        # runs that are trained; untrained runs with the model of this repository; untrained runs with a published model
        self.trained = [name for name in runs if runs[name]["trained"]]
        self.bundled = [name for name in runs if runs[name]["weights"] == BUNDLED]
        self.published = [name for name in runs if name not in (*self.trained, *self.bundled)]
        # {run: files from which its model is made}
        self.starts = {name: _start_files(run, engine_files) for name, run in runs.items()}
        # {threshold set: {"masks", "frames", "pictures": files that its pairs use}}
        self.data = _pair_files(settings, shards)
        self.evaluated = evaluated_models(settings, runs) | dict(other_rows)
        self.predictions = settings.evaluation.predictions
        # the split that models answer; personas whose paraphrases they answer too
        self.split = settings.inference.split
        self.personas = settings.paraphrase.personas if settings.inference.paraphrases else []
        self.request = read_request(config, runs, vlm_runs)  # request of `snakemake predict`
        # {run: GPUs of its inference}; {run or "training": memory of its engine's model in MB}
        self.gpus = {name: num_gpus("training", run["engine"], settings) for name, run in runs.items()}
        engines = {"training": settings.training.engine} | {name: run["engine"] for name, run in runs.items()}
        self.model_mb = {name: read_declaration(PACKAGE, engine, "MODEL_MB", 0) for name, engine in engines.items()}
        # the jobs that ask the language model of the stage paraphrase
        asks_model = settings.paraphrase.engine == "vllm"
        self.paraphrasing = ModelJobs(settings.llm, {}, is_asked=asks_model)
        # threshold sets whose dataset is also written in the layout of the authors' release
        self.layouts = settings.thresholds.build if settings.dataset.mimic_ils_layout else []


def run_options(settings: Settings) -> dict[str, dict]:
    """Return {run: options of its rules}.

    train: JSONL file with the training pairs. thresholds, test: threshold sets for training and test. wordings: file
    with paraphrases for the training, [] for none. trained: false for a model that is used as published. engine: engine
    that trains or runs the model. weights: published model that the run is or starts from. asking: inference options
    that depend on the run. beside: model of the paper whose scores are shown beside the run's scores.
    """
    options_by_run = {}
    for name, run in settings.training.named_runs().items():
        untrained_engine = BUNDLED if run.weights == BUNDLED else PUBLISHED_ENGINE
        engine = settings.training.engine if run.trained else untrained_engine
        options_by_run[name] = {
            "train": run.lines or f"results/dataset/{run.thresholds}/train.jsonl",
            "thresholds": run.thresholds,
            "test": run.test or run.thresholds,
            "wordings": f"results/paraphrase/{run.thresholds}/wordings.jsonl" if run.paraphrases else [],
            "trained": run.trained,
            "engine": engine,
            "weights": run.weights,
            "asking": {"dtype": getattr(settings.training, engine).dtype},
            "beside": "ROSALIA" if run.trained else PAPER_MODELS.get(run.weights, "ROSALIA"),
        }
    return options_by_run


def _start_files(run: Mapping, engine_files: Mapping[str, str]) -> dict[str, str]:
    """Return {name of an input: file} of the files from which the model of a run is made."""
    if run["weights"] == BUNDLED:
        return {}
    fetched = {"lisa": f"results/weights/{run['weights']}"} if run["weights"] else {}
    return {**(engine_files if run["trained"] else {"clip": "results/weights/clip"}), **fetched}


def _pair_files(settings: Settings, shards: Sequence[str]) -> dict[str, dict]:
    """Return {threshold set: {"masks", "frames", "pictures": files that its pairs use}}.
    An imported dataset has no 512 × 512 frames, but a table of its image files ("pictures")."""
    files_by_set = {
        name: {
            "masks": [f"results/masks/{name}/{shard}.h5" for shard in shards],
            "frames": [f"results/frames/{shard}.h5" for shard in shards],
            "pictures": [],
        }
        for name in settings.thresholds.all_sets()
    }
    if settings.dataset.mimic_ils:
        files_by_set[MIMIC_ILS] = {
            "masks": [f"results/masks/{MIMIC_ILS}/{MIMIC_ILS}.h5"],
            "frames": [],
            "pictures": f"results/dataset/{MIMIC_ILS}/pictures.tsv",
        }
    return files_by_set


def evaluated_models(settings: Settings, runs: Mapping[str, dict]) -> dict[str, dict]:
    """Return {run or other model: {"test", "predictions", "masks", "beside"}} for the evaluation.
    test: threshold set of the pairs that the model answered. predictions, masks: files with its answers and its masks.
    beside: model of the paper whose scores are shown beside its scores."""

    def make_row(stem: str, test: str, paper_model: str) -> dict:
        return {"test": test, "predictions": f"{stem}.jsonl", "masks": f"{stem}.h5", "beside": paper_model}

    split = settings.inference.split
    rows = {
        name: make_row(f"results/inference/{name}/{split}", run["test"], run["beside"]) for name, run in runs.items()
    }
    for name, prediction in settings.evaluation.predictions.items():
        rows[name] = make_row(f"results/evaluation/{name}/predictions", prediction.test, name)
        if prediction.adapter == "jsonl":  # our format; masks are in an h5 file beside it or named in its lines
            masks_path = Path(prediction.path).with_suffix(".h5")
            rows[name] |= {"predictions": prediction.path, "masks": str(masks_path) if masks_path.is_file() else []}
    return rows


def read_request(config: Mapping, training_runs: Collection[str], vlm_runs: Collection[str] = ()) -> dict:
    """Return the request of `snakemake predict --config` as a dict with image, instructions and run.

    The default run is `base`, which needs no training, or else the first of ``training_runs``. For a name in
    ``vlm_runs``, run is "", because another target asks these models. Raises UserError for an unknown run.
    """
    run = str(config.get("run") or (BASE if BASE in training_runs else next(iter(training_runs))))
    if run not in training_runs and run not in vlm_runs:
        choices = f"{', '.join(training_runs)} (training.runs)" + (
            f" and {', '.join(vlm_runs)} (vlm.tuning.runs)" if vlm_runs else ""
        )
        raise UserError(f"run is {run!r}, but the runs are {choices}: name one of them")
    instruction = config.get("instruction", [])
    return {
        "image": str(config.get("image", "")),
        "instructions": [instruction] if isinstance(instruction, str) else list(instruction),
        "run": run if run in training_runs else "",
    }
