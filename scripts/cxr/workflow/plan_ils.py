"""ILS's part of the plan: its runs, the files that their pairs use, and the models that are evaluated."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cxr.base.errors import UserError
from cxr.ils.training.settings import BASE
from cxr.workflow.engine_files import num_gpus, read_declaration
from cxr.workflow.models import ModelJobs
from cxr.workflow.settings import MIMIC_ILS, Settings

PACKAGE = "cxr.ils.training"
PUBLISHED_ENGINE = "rosalia"
"""Engine of ``training`` whose settings are used to ask a published model."""
BUNDLED = "lite"
"""The ``weights`` of a run that are part of this repository, and their engine: no rule downloads them."""
PAPER_MODELS = {"lisa": "LISA-7B"}
"""Published models with their own scores in the paper; all other models are shown beside ROSALIA's."""


class IlsPlan:
    """What ILS's rules take from the settings. Paths are relative to Snakemake's working directory."""

    def __init__(
        self,
        settings: Settings,
        config: Mapping,
        shards: Sequence[str],
        engine_files: Mapping[str, str],
        other_rows: Mapping[str, dict],
        vlm_runs: Collection[str],
    ):
        """``config``: requests of --config; ``engine_files``: inputs of the engine of training.

        ``other_rows``: models of other systems that are evaluated too; ``vlm_runs``: runs that another target asks.
        """
        # {run: its rules' options}, see :func:`run_options`
        self.runs = runs = run_options(settings)
        # runs that are trained, whose model is part of this repository, and whose model is published
        self.trained = [name for name in runs if runs[name]["trained"]]
        self.bundled = [name for name in runs if runs[name]["weights"] == BUNDLED]
        self.published = [name for name in runs if name not in (*self.trained, *self.bundled)]
        # {run: files that its model is made from}
        self.starts = {name: _start_files(run, engine_files) for name, run in runs.items()}
        # {dataset: masks, frames, pictures: files that its pairs use}
        self.data = _pair_files(settings, shards)
        # {run or other model: its test set, predictions, masks, and the paper's model}
        self.evaluated = evaluated_models(settings, runs) | dict(other_rows)
        # {other model: its settings}
        self.predictions = settings.evaluation.predictions
        # in which models are asked, and personas in whose wordings they are asked too
        self.split = settings.inference.split
        self.personas = settings.paraphrase.personas if settings.inference.paraphrases else []
        # of `snakemake predict`
        self.request = read_request(config, runs, vlm_runs)
        # {run: GPUs of asking it}; {run or "training": memory of its engine's model}
        self.gpus = {name: num_gpus("training", run["engine"], settings) for name, run in runs.items()}
        engines = {"training": settings.training.engine} | {name: run["engine"] for name, run in runs.items()}
        self.model_mb = {name: read_declaration(PACKAGE, engine, "MODEL_MB", 0) for name, engine in engines.items()}
        # jobs that ask the stage paraphrase's language model
        asks_model = settings.paraphrase.engine == "vllm"
        self.paraphrasing = ModelJobs(settings.llm, {}, is_asked=asks_model)
        # threshold sets in the layout of the authors' release
        self.layouts = settings.thresholds.build if settings.dataset.mimic_ils_layout else []


def run_options(settings: Settings) -> dict[str, dict]:
    """Return {run: its rules' options}.

    train, thresholds, test: the training lines, and the sets of its dataset and its test; trained: whether it is
    trained; engine: of ``training``; weights: the model that it is or starts from; asking: options of the stage
    inference that depend on the run; beside: the paper's model whose scores are shown beside its own; wordings: the
    paraphrases that it is also trained on, [] for none.
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
    """Return {name of a rule's input: file} that a run's model is made from."""
    if run["weights"] == BUNDLED:
        return {}
    fetched = {"lisa": f"results/weights/{run['weights']}"} if run["weights"] else {}
    return {**(engine_files if run["trained"] else {"clip": "results/weights/clip"}), **fetched}


def _pair_files(settings: Settings, shards: Sequence[str]) -> dict[str, dict]:
    """Return {set: masks, frames, pictures}: the files that its pairs use; pictures are a release's images."""
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
    """Return {run or other model: test, predictions, masks, beside}: test set, predictions, the paper's model."""

    def make_row(stem: str, test: str, paper_model: str) -> dict:
        return {"test": test, "predictions": f"{stem}.jsonl", "masks": f"{stem}.h5", "beside": paper_model}

    split = settings.inference.split
    rows = {
        name: make_row(f"results/inference/{name}/{split}", run["test"], run["beside"]) for name, run in runs.items()
    }
    for name, prediction in settings.evaluation.predictions.items():
        rows[name] = make_row(f"results/evaluation/{name}/predictions", prediction.test, name)
        if prediction.adapter == "jsonl":  # our format; masks may lie beside it, or its lines name them
            masks_path = Path(prediction.path).with_suffix(".h5")
            rows[name] |= {"predictions": prediction.path, "masks": str(masks_path) if masks_path.is_file() else []}
    return rows


def read_request(config: Mapping, training_runs: Collection[str], vlm_runs: Collection[str] = ()) -> dict:
    """Return the request of `snakemake predict --config`: image, instructions, run ("" for one of ``vlm_runs``).

    The default run is `base`, which needs no training, or else the first of ``training_runs``. Raises UserError for an
    unknown run.
    """
    run = str(config.get("run") or (BASE if BASE in training_runs else next(iter(training_runs))))
    if run not in training_runs and run not in vlm_runs:
        choices = f"{', '.join(training_runs)} (training.runs)" + (
            f" and {', '.join(vlm_runs)} (vlm.tuning.runs)" if vlm_runs else ""
        )
        raise UserError(f"run is {run!r}, but the runs are {choices}")
    instruction = config.get("instruction", [])
    return {
        "image": str(config.get("image", "")),
        "instructions": [instruction] if isinstance(instruction, str) else list(instruction),
        "run": run if run in training_runs else "",
    }
