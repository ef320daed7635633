"""The plan: one namespace with everything that the rules take from the settings, made at the parse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from cxr.base.errors import existing_file
from cxr.base.seeds import shard_names
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort.check import check_inputs, check_lists, source_files
from cxr.imaging.weights.catalogue import check_placed, models, needed, placed, rule_params
from cxr.reporting.explain.asked import asked as asked_study
from cxr.workflow import params
from cxr.workflow.engine_files import declared, engine_inputs, engine_sources, package_of
from cxr.workflow.medground_plan import MedgroundPlan, medground_plan
from cxr.workflow.params import ASKED, ENGINE_STAGES
from cxr.workflow.plan_semisyn import SemisynPlan, make_semisyn
from cxr.workflow.plan_vlm import VlmPlan, asked_image, vlm_plan
from cxr.workflow.preflight import optional_results
from cxr.workflow.radvlm_evaluation_plan import EvaluationPlan, evaluation_plan
from cxr.workflow.radvlm_plan import RadvlmPlan, radvlm_plan
from cxr.workflow.radvlm_segmenting import Segmenting, segmenting
from cxr.workflow.settings import Settings, read

BY_SHARD = ("frames", "reports", "organs", "anomaly", "anatomy", "boxes", "semisyn/healthy", "semisyn/placement")
"""Stages with one ledger of exclusions per shard, by their folders below ``results``."""
BY_THRESHOLDS = ("masks", "dataset")
"""Stages with one ledger of exclusions per threshold set."""
PAGE_TABLES = ("splits", "funnel", "conservation", "counts", "recall")


@dataclass(frozen=True)
class Plan:
    """Everything that a rule may read. Paths are relative to Snakemake's working directory.

    settings: the checked settings. options: {stage: its own settings as builtins}; a rule takes only its own
    stage's, so that a change re-runs only that stage and its successors. engines: {stage: engine}. shards, splits,
    sets ({threshold set: its thresholds}), build (the built sets), layouts (the sets in the layout of the authors'
    release), reviewed (the set that experts review), tables (names). cohort_files, engine_files, engine_sources:
    the inputs of the cohort's rule, and of each stage's engine. runs, trained, published, own: the models (own:
    those in this repository); starts: {run: files it is made from}; data: {set: files that its pairs use}.
    evaluated, predictions_of, split, personas: the scored models, the models whose predictions are read, the split,
    and the personas. weights, weights_needed, placed: params of the rules that fetch weights, the needed weights,
    and the files that the user placed; models: files and params of the rule that notes a model, of those that settings
    name. sheets, references, predict, ask, explain, shown, besides: the inputs of
    `review`, `agreement`, `predict`, `vlm_ask`, `explain`, the page and the target of the reports; formats: the
    modules that read the references. gpus, model_mb, gpu_of: GPUs and megabytes of each stage and run; groups: the
    SLURM group of each stage (GPU and CPU jobs never share one); model_here: whether `paraphrase` loads a language
    model in its job; structured: shards, name and message of the jobs in which a language model reads reports.
    exclusions: {stage: its ledgers and the threshold set of each, empty for a stage without}. semisyn: the plan of
    SemiSynCXR. medground: that of MedGround. radvlm: that of RadVLM, evaluation: of its scores, segmenting: of
    masks for its answers. vlm: the plan of vision-language models.
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
    own: list[str]
    starts: dict[str, dict[str, str]]
    data: dict[str, dict]
    evaluated: dict[str, dict]
    predictions_of: Mapping[str, object]
    split: str
    personas: Sequence[str]
    weights: dict[str, dict]
    weights_needed: list[str]
    placed: dict
    models: dict[str, dict]
    sheets: list[str]
    references: dict[str, dict]
    formats: list[str]
    predict: dict
    ask: dict
    explain: dict
    shown: list[str]
    besides: list[str]
    gpus: dict[str, int]
    model_mb: dict[str, int]
    gpu_of: dict[str, int]
    groups: dict[str, str]
    model_here: bool
    structured: dict
    exclusions: dict[str, dict[str, list[str]]]
    semisyn: SemisynPlan
    medground: MedgroundPlan
    radvlm: RadvlmPlan
    vlm: VlmPlan
    evaluation: EvaluationPlan
    segmenting: Segmenting

    @property
    def zero_shot(self) -> list[str]:
        """Return the vision-language runs whose answers to MedGround's zero-shot sources are scored."""
        uses = {source["use"] for source in self.medground.sources.values()}
        return self.vlm.scored("medground_zero_shot") if "zero_shot" in uses else []

    def pictures(self, system: str) -> list[str]:
        """Return the shards that hold the pictures of a system's lines; of a file's, "", MedGround's."""
        return self.radvlm.pictures() if system == "radvlm" else self.medground.parts("sources", "h5")

    def folders(self, system: str) -> dict[str, str]:
        """Return {source: folder of its shards} of a system's lines, where a source's pictures may be another's."""
        return self.radvlm.folders if system == "radvlm" else {}

    def originals(self, run: str) -> list[str]:
        """Return the tables that name the image files of a vision-language run's samples; none where it sees frames."""
        decoding = self.vlm.runs[run]["options"]["original"]
        return self.radvlm.of_sources("images.parquet") if decoding else []

    def masks(self, run: str) -> list[str]:
        """Return the shards that hold the masks of a vision-language run's [SEG]; none of a run without a head."""
        return self.radvlm.masks(self.vlm.runs[run]["mix"]) if run in self.vlm.segmented else []

    def shards_of(self, path: str, wildcards: Mapping[str, str]) -> list[str]:
        """Return the shards of a result that is made shard by shard; ``wildcards``: those of its rule."""
        if path.startswith("results/medground/"):
            return self.medground.shards
        if path.startswith("results/semisyn/"):
            config = wildcards.get("config")
            return self.semisyn.shards_of(config) if config else [*self.shards, *self.semisyn.parts]
        return self.shards

    def built(self, wildcards: object) -> list[str]:
        """Return :attr:`build`, as an input function.

        Snakemake then lists the files of all sets and shards only when a job needs them. Every job of a cluster parses
        the workflow twice, and lists of some hundred files would double the parse time.
        """
        return self.build


def make_plan(config: dict, configfiles: Sequence[Path]) -> Plan:
    """Return the plan of the settings ``config``, read from ``configfiles``.

    Raises SettingsError or UserError for a wrong setting, before any job.
    """
    settings = read({key: value for key, value in config.items() if key not in ASKED}, configfiles)
    options = params.stage_options(settings)
    cohort = SimpleNamespace(**options["cohort"])
    # a job makes the embedded cohort's manifest
    (check_lists if settings.cohort.source == "embedded" else check_inputs)(cohort)
    engines = {stage: options[stage]["engine"] for stage in ENGINE_STAGES}
    engine_files, engine_sources = _files_of(settings, options, engines)
    runs = params.runs(settings)
    starts = params.starts(runs, engine_files["training"], declared("cxr.ils.training", "untrained", "INPUTS", {}))
    shards = shard_names(options["cohort"]["shards"])
    semisyn = make_semisyn(settings, options, shards)
    radvlm = radvlm_plan(settings, shards, options["cohort"])
    nets = engine_files | {"semisyn_healthy": semisyn.healthy, "radvlm_sources": radvlm.labelling.files}
    mixes = list(settings.radvlm.instructions.mixes)
    compute = settings.compute
    vlm = vlm_plan(settings.vlm, compute.device, compute.gpus, mixes, params.decoding(options))
    evaluation = evaluation_plan(settings, vlm)
    nets |= semisyn.realism.files | {name: annotator.files for name, annotator in evaluation.annotators.items()}
    weights_needed = _weights(settings, nets, runs, starts, vlm)
    own_runs = [name for name in runs if runs[name]["weights"] == params.OWN]
    gpus, build = _gpus(settings, options, engines), settings.thresholds.build
    tool, vlm = segmenting(settings, vlm, list(runs))
    evaluated = params.evaluated(settings) | tool.rows
    predict = params.read_request(config, runs, list(vlm.runs))
    params.check_files(settings, predict["image"])
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
        published=[name for name in runs if not runs[name]["trained"] and name not in own_runs],
        own=own_runs,
        starts=starts,
        data=params.data(settings, shards),
        evaluated=evaluated,
        predictions_of=settings.evaluation.predictions,
        split=settings.inference.split,
        personas=settings.paraphrase.personas if settings.inference.paraphrases else [],
        weights=rule_params(settings.weights.sha256, settings.weights.folder),
        weights_needed=weights_needed,
        placed=placed(settings.weights.folder),
        models=models(_models_used(settings), settings.weights.sha256),
        sheets=params.sheets(settings),
        references=params.references(settings),
        formats=params.formats(settings),
        predict=predict,
        ask=asked_image(config, vlm),
        explain=asked_study(config, Path("results")),
        shown=optional_results(runs, evaluated, settings.inference.paraphrases),
        besides=["results/reports/agreement.tsv"] if settings.reports.engine == "both" else [],
        gpus=gpus,
        model_mb={
            name: declared("cxr.ils.training", engine, "MODEL_MB", 0)
            for name, engine in [("training", engines["training"]), *((name, runs[name]["engine"]) for name in runs)]
        },
        gpu_of={name: _gpu("cxr.ils.training", run["engine"], settings) for name, run in runs.items()},
        groups=_groups(gpus, semisyn.gpus),
        model_here=_paraphrases_here(settings),
        structured=_structured(settings, shards),
        exclusions={stage: _exclusions(stage, shards, []) for stage in BY_SHARD}
        | {stage: _exclusions(stage, build, build) for stage in BY_THRESHOLDS},
        semisyn=semisyn,
        medground=medground_plan(settings, shards, list(options["ablation"]["sets"])),
        radvlm=radvlm,
        vlm=vlm,
        evaluation=evaluation,
        segmenting=tool,
    )


def _groups(gpus: dict[str, int], editing: dict[str, int]) -> dict[str, str]:
    """Return {stage: its SLURM group}; ``editing``: GPUs of each engine of SemiSynCXR's editing.

    The stages that SemiSynCXR runs again on edited images have groups of their own: together with the jobs on the
    cohort's images, a group would wait for itself.
    """
    device = {stage: "gpu" if count else "cpu" for stage, count in gpus.items()}
    groups = {stage: f"{stage}-{name}" for stage, name in device.items()}
    groups |= {f"semisyn_realism_{stage}": f"semisyn_realism-{device[stage]}" for stage in ("organs", "boxes")}
    return groups | {
        f"semisyn_editing_{engine}": f"semisyn_editing-{'gpu' if count else 'cpu'}" for engine, count in editing.items()
    }


def _exclusions(stage: str, parts: list[str], thresholds: list[str]) -> dict[str, list[str]]:
    ending = "/excluded.parquet" if thresholds else ".excluded.parquet"
    return {"files": [f"results/{stage}/{part}{ending}" for part in parts], "thresholds": thresholds}


def _files_of(settings: Settings, options: dict, engines: dict[str, str]) -> tuple[dict, dict]:
    """Return the files that the chosen engines read besides their stages' inputs, and those of their own rules."""
    files, sources = (
        {stage: lookup(stage, engine, options[stage].get("own")) for stage, engine in engines.items()}
        for lookup in (engine_inputs, engine_sources)
    )
    if settings.anomaly.images == "with_findings":
        files["anomaly"] |= {"cohort": "results/cohort/{shard}.parquet", "reports": "results/reports/{shard}.jsonl"}
    if settings.boxes.engine == "table":
        files["boxes"] = {"table": str(existing_file("boxes.table", settings.boxes.table))}
    return files, sources


def _weights(settings: Settings, engine_files: dict, runs: dict, starts: dict, vlm: VlmPlan) -> list[str]:
    """Return the published weights that engines and runs read. Raises UserError for a file that is not placed."""
    heads = {f"vlm.tuning.runs.{name}": dict(enumerate(vlm.runs[name]["sam"])) for name in vlm.segmented}
    weight_paths = needed(
        {stage: files for stage, files in engine_files.items() if stage != "training"} | starts | heads
    )
    runs_with_weights = [name for name in runs if runs[name]["weights"] and "lisa" in starts[name]]
    asking = {Path(starts[name]["lisa"]).name: f"training.runs.{name}" for name in runs_with_weights}
    screened = settings.semisyn.healthy.classifier == "xrv"
    asking |= {"xrv": "semisyn.healthy.classifier 'xrv'" if screened else "semisyn.realism.features with 'xrv'"}
    asking |= {"inception": "semisyn.realism.features with 'inception'", "chexbert": "radvlm's 'chexbert'"}
    if head_keys := [name for name, files in heads.items() if files]:
        asking["sam"] = f"{head_keys[0]}.segmentation 'head'"
    check_placed(weight_paths, settings.weights.folder, asking)
    return weight_paths


def _models_used(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return {setting: (model, revision)} of the models of runs and annotators; one behind a server is not here."""
    runs = {f"vlm.tuning.runs.{name}": run for name, run in settings.vlm.tuning.runs.items()}
    evaluation = settings.radvlm.evaluation
    # a section of the evaluation, where the annotator has one
    sections = {f"radvlm.evaluation.{name}": getattr(evaluation, name, None) for name in evaluation.annotators}
    return {
        f"{key}.model": (section.model, getattr(section, "revision", ""))
        for key, section in (runs | sections).items()
        if section and getattr(section, "transport", "") != "server"
    }


def _gpu(package: str, engine: str, settings: Settings) -> int:
    """Return 1 if the engine's net needs a GPU and GPUs are available; only a training can use several."""
    return min(1, settings.compute.gpus) if declared(package, engine, "GPU", False) else 0


def _gpus(settings: Settings, options: dict, engines: dict[str, str]) -> dict[str, int]:
    gpus = {stage: _gpu(package_of(stage), engine, settings) for stage, engine in engines.items()}
    gpus["training"] *= settings.compute.gpus if options["training"]["own"]["runner"] == "deepspeed" else 1
    # a language model that is loaded in the job, not on a server
    llm = settings.reports.llm
    gpus["reports"] = llm.execution.gpus if llm.transport == "offline" else 0
    return gpus | {"paraphrase": settings.paraphrase.llm.execution.gpus if _paraphrases_here(settings) else 0}


def _structured(settings: Settings, shards: list[str]) -> dict:
    """Return shards, name and message of the jobs that structure reports: one for all shards, or the wildcard's."""
    if settings.reports.llm.transport == "offline":
        return {"shards": shards, "name": "all", "told": "all shards"}
    return {"shards": ["{shard}"], "name": "{shard}", "told": "shard {wildcards.shard}"}


def _paraphrases_here(settings: Settings) -> bool:
    """Return whether the stage paraphrase loads a language model in its job instead of asking a server."""
    return settings.paraphrase.engine == "vllm" and settings.paraphrase.llm.transport == "offline"
