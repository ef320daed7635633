"""What the rules take from the settings: one namespace, made at the parse, before any job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from cxr.base.errors import existing_file
from cxr.base.seeds import shard_names
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort.check import check_inputs, check_lists, source_files
from cxr.imaging.weights.catalogue import check_placed, needed, placed, rule_params
from cxr.reporting.explain.asked import asked as asked_study
from cxr.workflow import params
from cxr.workflow.engine_files import declared, engine_inputs, engine_sources, package_of
from cxr.workflow.params import ASKED, ENGINE_STAGES
from cxr.workflow.preflight import shown
from cxr.workflow.settings import Settings, read

BY_SHARD = ("frames", "reports", "organs", "anomaly", "anatomy", "boxes")
"""Stages whose exclusions come shard by shard."""
BY_THRESHOLDS = ("masks", "dataset")
"""Stages whose exclusions come by threshold set."""
PAGE_TABLES = ("splits", "funnel", "conservation", "counts", "recall")


@dataclass(frozen=True)
class Plan:
    """Everything a rule may ask. Paths are below the folder in which Snakemake works.

    settings: the checked settings. options: {stage: its own settings as plain builtins}; a rule takes its stage's and
    no other's, so that a change runs that stage and what follows from it again. engines: {stage: engine}.
    shards, splits, sets ({threshold set: its thresholds}), build (those that are built), layouts (those in the layout
    of the authors' release), reviewed (the one that experts review), tables (names).
    cohort_files, engine_files, engine_sources: the inputs of the cohort's rule, and of each stage's engine.
    runs, trained, published: the models; starts: {run: files it is made of}; data: {set: files its pairs name}.
    evaluated, predictions_of, split, personas: what is scored, whose predictions are read, on which split, in whose
    wordings. weights, weights_needed, placed: params of the rules that fetch weights, which are needed, and the files
    that the user placed. sheets, references, predict, explain, shown, besides: what `review`, `agreement`, `predict`,
    `explain`, the page and the target of the reports were given; formats: the modules that read the references.
    gpus, model_mb, gpu_of: GPUs and megabytes of each stage and run; groups: the SLURM group of each stage, where GPU
    and CPU never share one; model_here: whether `paraphrase` loads a language model in its job.
    exclusions: {stage: files and the threshold set of each, none for a stage without}.
    """

    settings: Settings
    options: dict[str, dict]
    engines: dict[str, str]
    shards: list[str]
    splits: tuple[str, ...]
    sets: dict[str, dict]
    build: list[str]
    layouts: list[str]
    reviewed: str
    tables: list[str]
    cohort_files: dict
    engine_files: dict[str, dict[str, str]]
    engine_sources: dict[str, dict[str, str]]
    runs: dict[str, dict]
    trained: list[str]
    published: list[str]
    starts: dict[str, dict[str, str]]
    data: dict[str, dict]
    evaluated: dict[str, dict]
    predictions_of: Mapping[str, object]
    split: str
    personas: Sequence[str]
    weights: dict[str, dict]
    weights_needed: list[str]
    placed: dict
    sheets: list[str]
    references: dict[str, dict]
    formats: list[str]
    predict: dict
    explain: dict
    shown: list[str]
    besides: list[str]
    gpus: dict[str, int]
    model_mb: dict[str, int]
    gpu_of: dict[str, int]
    groups: dict[str, str]
    model_here: bool
    exclusions: dict[str, dict[str, list[str]]]

    def built(self, wildcards: object) -> list[str]:
        """Return :attr:`build`; an input function.

        Snakemake then lists the files of all sets and shards when a job needs them. At the parse, which every job of a
        cluster does twice, lists of some hundred files would take as long as everything else.
        """
        return self.build


def make_plan(config: dict, configfiles: Sequence[Path]) -> Plan:
    """Return the plan of the settings ``config``, read from ``configfiles``.

    Raises SettingsError or UserError: one sentence for what is wrong, before any job.
    """
    settings = read({key: value for key, value in config.items() if key not in ASKED}, configfiles)
    options = params.stage_options(settings)
    cohort = SimpleNamespace(**options["cohort"])
    # the embedded cohort's manifest is made by a job
    (check_lists if settings.cohort.source == "embedded" else check_inputs)(cohort)
    engines = {stage: options[stage]["engine"] for stage in ENGINE_STAGES}
    engine_files, engine_sources = _files_of(settings, options, engines)
    runs = params.runs(settings)
    starts = params.starts(runs, engine_files["training"], declared("cxr.ils.training", "untrained", "INPUTS", {}))
    weights_needed = _weights(settings, engine_files, runs, starts)
    shards, evaluated = shard_names(options["cohort"]["shards"]), params.evaluated(settings)
    predict = params.asked(config, runs)
    params.check_files(settings, predict["image"])
    gpus, build = _gpus(settings, options, engines), settings.thresholds.build
    return Plan(
        settings=settings,
        options=options,
        engines=engines,
        shards=shards,
        splits=SPLITS,
        sets=options["ablation"]["sets"],
        build=build,
        layouts=build if settings.dataset.mimic_ils_layout else [],
        reviewed=settings.review.thresholds or build[0],
        tables=[*PAGE_TABLES, "truth"] if settings.cohort.source == "embedded" else list(PAGE_TABLES),
        cohort_files=source_files(cohort),
        engine_files=engine_files,
        engine_sources=engine_sources,
        runs=runs,
        trained=[name for name in runs if runs[name]["trained"]],
        published=[name for name in runs if not runs[name]["trained"]],
        starts=starts,
        data=params.data(settings, shards),
        evaluated=evaluated,
        predictions_of=settings.evaluation.predictions,
        split=settings.inference.split,
        personas=settings.paraphrase.personas if settings.inference.paraphrases else [],
        weights=rule_params(settings.weights.sha256, settings.weights.folder),
        weights_needed=weights_needed,
        placed=placed(settings.weights.folder),
        sheets=params.sheets(settings),
        references=params.references(settings),
        formats=params.formats(settings),
        predict=predict,
        explain=asked_study(config, Path("results")),
        shown=shown(runs, evaluated, settings.inference.paraphrases),
        besides=["results/reports/agreement.tsv"] if settings.reports.engine == "both" else [],
        gpus=gpus,
        model_mb={
            name: declared("cxr.ils.training", engine, "MODEL_MB", 0)
            for name, engine in [("training", engines["training"]), *((name, runs[name]["engine"]) for name in runs)]
        },
        gpu_of={name: _gpu("cxr.ils.training", run["engine"], settings) for name, run in runs.items()},
        groups={stage: f"{stage}-{'gpu' if count else 'cpu'}" for stage, count in gpus.items()},
        model_here=_paraphrases_here(settings),
        exclusions={stage: _exclusions(stage, shards, []) for stage in BY_SHARD}
        | {stage: _exclusions(stage, build, build) for stage in BY_THRESHOLDS},
    )


def _exclusions(stage: str, parts: list[str], thresholds: list[str]) -> dict[str, list[str]]:
    ending = "/excluded.parquet" if thresholds else ".excluded.parquet"
    return {"files": [f"results/{stage}/{part}{ending}" for part in parts], "thresholds": thresholds}


def _files_of(settings: Settings, options: dict, engines: dict[str, str]) -> tuple[dict, dict]:
    """Return what the chosen engines read besides their stages' inputs, and what rules of theirs alone read."""
    files, sources = (
        {stage: of(stage, engine, options[stage].get("own")) for stage, engine in engines.items()}
        for of in (engine_inputs, engine_sources)
    )
    if settings.boxes.engine == "table":
        files["boxes"] = {"table": str(existing_file("boxes.table", settings.boxes.table))}
    return files, sources


def _weights(settings: Settings, engine_files: dict, runs: dict, starts: dict) -> list[str]:
    """Return the published weights among the files that engines and runs read. Raises UserError for one not placed."""
    found = needed({stage: files for stage, files in engine_files.items() if stage != "training"} | starts)
    asking = {Path(starts[name]["lisa"]).name: f"training.runs.{name}" for name in runs if runs[name]["weights"]}
    check_placed(found, settings.weights.folder, asking)
    return found


def _gpu(package: str, engine: str, settings: Settings) -> int:
    """Return 1 if a net of the engine wants a GPU and there is one: only a training knows how to use several."""
    return min(1, settings.compute.gpus) if declared(package, engine, "GPU", False) else 0


def _gpus(settings: Settings, options: dict, engines: dict[str, str]) -> dict[str, int]:
    gpus = {stage: _gpu(package_of(stage), engine, settings) for stage, engine in engines.items()}
    gpus["training"] *= settings.compute.gpus if options["training"]["own"]["runner"] == "deepspeed" else 1
    # a language model that is loaded in the job, not asked on a server
    llm = settings.reports.llm
    gpus["reports"] = llm.execution.gpus if llm.transport == "offline" else 0
    return gpus | {"paraphrase": settings.paraphrase.llm.execution.gpus if _paraphrases_here(settings) else 0}


def _paraphrases_here(settings: Settings) -> bool:
    """Tell whether the stage paraphrase loads a language model in its job; another one is asked on a server."""
    return settings.paraphrase.engine == "vllm" and settings.paraphrase.llm.transport == "offline"
