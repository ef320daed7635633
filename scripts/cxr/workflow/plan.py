"""The plan: one namespace with everything that the rules take from the settings, made at the parse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import existing_file
from cxr.base.seeds import shard_names
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort.check import check_inputs, check_lists, source_files
from cxr.imaging.cohort.settings import CohortSettings
from cxr.workflow import params
from cxr.workflow.engine_files import engine_inputs, find_package, num_gpus, users_files
from cxr.workflow.models import ModelJobs
from cxr.workflow.params import ENGINE_STAGES, REQUEST_KEYS
from cxr.workflow.plan_ils import IlsPlan, make_ils_plan, run_options
from cxr.workflow.plan_imaging import WeightsPlan, decoding_options, make_weights_plan
from cxr.workflow.plan_medground import MedgroundPlan, make_medground_plan
from cxr.workflow.plan_radvlm import (
    EvaluationPlan,
    RadvlmPlan,
    SegmentationPlan,
    make_evaluation_plan,
    make_radvlm_plan,
    make_segmentation_plan,
)
from cxr.workflow.plan_reporting import ReportingPlan, make_reporting_plan
from cxr.workflow.plan_semisyn import SemisynPlan, make_semisyn_plan
from cxr.workflow.plan_vlm import VlmPlan, make_vlm_plan, read_request
from cxr.workflow.settings import Settings, read

STAGES_BY_SHARD = (
    "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "semisyn/healthy", "semisyn/placement"
)  # fmt: skip
"""Stages with one ledger of exclusions per shard, by their folders below ``results``."""
STAGES_BY_SET = ("masks", "dataset")
"""Stages with one ledger of exclusions per threshold set."""


@dataclass(frozen=True)
class Plan:
    """Everything that a rule may read. Paths are relative to Snakemake's working directory.

    A rule takes only its own stage's ``options``, so that a change reruns only that stage and its successors.
    """

    settings: Settings
    options: dict[str, dict]  # {stage: its settings as builtins}
    shards: list[str]  # of the cohort
    splits: tuple[str, ...]
    sets: dict[str, dict]  # {threshold set: its thresholds}
    build: list[str]  # threshold sets that are built
    cohort_files: dict  # {name: files that the cohort is read from}
    engines: dict[str, str]  # {stage: its engine}
    engine_files: dict[str, dict[str, str]]  # {stage: files that its engine reads besides the stage's inputs}
    engine_sources: dict[str, dict[str, str]]  # {stage: files that only the rules of its engine read}
    gpus: dict[str, int]  # {stage: GPUs of a job}
    groups: dict[str, str]  # {stage: its SLURM group}; GPU and CPU jobs never share one
    structuring: ModelJobs  # jobs in which a language model reads reports
    exclusions: dict[str, dict[str, list[str]]]  # {stage: its ledgers, and the threshold set of each or []}
    weights: WeightsPlan
    ils: IlsPlan
    semisyn: SemisynPlan
    medground: MedgroundPlan
    radvlm: RadvlmPlan
    evaluation: EvaluationPlan  # of RadVLM
    segmentation: SegmentationPlan  # masks for RadVLM's answers
    vlm: VlmPlan
    vlm_request: dict  # of `snakemake vlm_ask`
    reporting: ReportingPlan

    @property
    def zero_shot_runs(self) -> list[str]:
        """Vision-language runs whose answers to MedGround's zero-shot sources are scored."""
        uses = {source["use"] for source in self.medground.sources.values()}
        return self.vlm.asked_runs("medground_zero_shot") if "zero_shot" in uses else []

    def image_shards(self, system: str) -> list[str]:
        """Return the shards that hold the images of a system's lines; for "", a user's file of lines, MedGround's."""
        if system == "radvlm":
            return self.radvlm.all_frames()
        return [
            f"results/medground/sources/{source}/{shard}.h5"
            for source in self.medground.sources
            for shard in self.medground.shards
        ]

    def image_folders(self, system: str) -> dict[str, str]:
        """Return {source: folder of its image shards} of a system's lines, where a source may use another's images."""
        return self.radvlm.folders if system == "radvlm" else {}

    def original_tables(self, run: str) -> list[str]:
        """Return the tables with the image files of a vision-language run's samples; none if it sees frames."""
        sources = self.radvlm.sources if self.vlm.runs[run]["options"]["original"] else []
        return [f"results/radvlm/sources/{source}/images.parquet" for source in sources]

    def segmentation_masks(self, run: str) -> list[str]:
        """Return the shards of the masks that a vision-language run's [SEG] stands for; none without a head."""
        return self.radvlm.segmentation_masks(self.vlm.runs[run]["mix"]) if run in self.vlm.with_head else []

    def shards_of(self, path: str, wildcards: Mapping[str, str]) -> list[str]:
        """Return the shards of a result that is made shard by shard; ``wildcards``: those of its rule."""
        if path.startswith("results/medground/"):
            return self.medground.shards
        if path.startswith("results/semisyn/"):
            config = wildcards.get("config")
            return self.semisyn.shards_of(config) if config else [*self.shards, *self.semisyn.trial_shards]
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
    settings = read({key: value for key, value in config.items() if key not in REQUEST_KEYS}, configfiles)
    options = params.stage_options(settings)
    cohort = CohortSettings.from_dict({key: value for key, value in options["cohort"].items() if key != "seed"})
    # a job makes the embedded cohort's manifest
    (check_lists if settings.cohort.source == "embedded" else check_inputs)(cohort)
    engines = {stage: options[stage]["engine"] for stage in ENGINE_STAGES}
    engine_files, engine_sources = _engine_files(settings, options, engines)
    shards, build = shard_names(cohort.shards), settings.thresholds.build
    semisyn = make_semisyn_plan(settings, options, shards)
    radvlm = make_radvlm_plan(settings, shards)
    compute, mixes = settings.compute, list(settings.radvlm.instructions.mixes)
    vlm = make_vlm_plan(settings.vlm, compute.device, compute.gpus, mixes, decoding_options(options))
    evaluation = make_evaluation_plan(settings, vlm)
    segmentation, vlm = make_segmentation_plan(settings, vlm, list(run_options(settings)))
    ils = make_ils_plan(settings, config, shards, engine_files["training"], segmentation.rows, list(vlm.runs))
    net_files = engine_files | {"semisyn_healthy": semisyn.healthy_files, "radvlm_sources": radvlm.label_files}
    net_files |= semisyn.realism.files
    net_files |= {name: annotator.files for name, annotator in evaluation.annotators.items()}
    weights = make_weights_plan(settings, net_files, ils.runs, ils.starts, vlm)
    params.check_files(settings, ils.request["image"])
    gpus = _stage_gpus(settings, options, engines, loads_paraphraser=ils.loads_paraphraser)
    return Plan(
        settings=settings,
        options=options,
        shards=shards,
        splits=SPLITS,
        sets=options["ablation"]["sets"],
        build=build,
        cohort_files=source_files(cohort),
        engines=engines,
        engine_files=engine_files,
        engine_sources=engine_sources,
        gpus=gpus,
        groups=_groups(gpus, semisyn.editing_gpus),
        structuring=ModelJobs.of_section(settings.reports.llm, {"shard": shards}),
        exclusions={
            stage: {"files": [f"results/{stage}/{shard}.excluded.parquet" for shard in shards], "thresholds": []}
            for stage in STAGES_BY_SHARD
        }
        | {
            stage: {"files": [f"results/{stage}/{name}/excluded.parquet" for name in build], "thresholds": build}
            for stage in STAGES_BY_SET
        },
        weights=weights,
        ils=ils,
        semisyn=semisyn,
        medground=make_medground_plan(settings, shards, list(options["ablation"]["sets"])),
        radvlm=radvlm,
        evaluation=evaluation,
        segmentation=segmentation,
        vlm=vlm,
        vlm_request=read_request(config, vlm),
        reporting=make_reporting_plan(settings, config, ils.runs, ils.evaluated),
    )


def _engine_section(options: dict, engine: str) -> dict:
    """Return the engine's settings in its stage's options; ``boxes.table`` is a path, the engine table has none."""
    section = options.get(engine)
    return section if isinstance(section, dict) else {}


def _engine_files(settings: Settings, options: dict, engines: dict[str, str]) -> tuple[dict, dict]:
    """Return the files that the chosen engines read besides their stages' inputs, and those of the engines' own rules.

    Both are {stage: {name: path}}. Raises UserError for a user's file that is missing.
    """
    sections = {stage: _engine_section(options[stage], engine) for stage, engine in engines.items()}
    files = {stage: engine_inputs(stage, engine, sections[stage]) for stage, engine in engines.items()}
    sources = {
        stage: users_files(find_package(stage), engine, sections[stage], f"{stage}.{engine}", "SOURCES")
        for stage, engine in engines.items()
    }
    if settings.anomaly.images == "with_findings":
        files["anomaly"] |= {"cohort": "results/cohort/{shard}.parquet", "reports": "results/reports/{shard}.jsonl"}
    if settings.boxes.engine == "table":
        files["boxes"] = {"table": str(existing_file("boxes.table", settings.boxes.table))}
    return files, sources


def _stage_gpus(
    settings: Settings, options: dict, engines: dict[str, str], *, loads_paraphraser: bool
) -> dict[str, int]:
    """Return {stage: GPUs of a job}; a language model needs them if the job loads it."""
    gpus = {stage: num_gpus(find_package(stage), engine, settings) for stage, engine in engines.items()}
    with_deepspeed = options["training"][engines["training"]]["runner"] == "deepspeed"
    gpus["training"] *= settings.compute.gpus if with_deepspeed else 1
    llm = settings.reports.llm
    gpus["reports"] = llm.execution.gpus if llm.transport == "offline" else 0
    gpus["paraphrase"] = settings.paraphrase.llm.execution.gpus if loads_paraphraser else 0
    return gpus


def _groups(gpus: dict[str, int], editing_gpus: dict[str, int]) -> dict[str, str]:
    """Return {stage: its SLURM group}; ``editing_gpus``: GPUs of each engine of SemiSynCXR's editing.

    The stages that SemiSynCXR runs again on edited images have groups of their own: together with the jobs on the
    cohort's images, a group would wait for itself.
    """
    device = {stage: "gpu" if count else "cpu" for stage, count in gpus.items()}
    groups = {stage: f"{stage}-{name}" for stage, name in device.items()}
    groups |= {f"semisyn_realism_{stage}": f"semisyn_realism-{device[stage]}" for stage in ("organs", "boxes")}
    return groups | {
        f"semisyn_editing_{engine}": f"semisyn_editing-{'gpu' if count else 'cpu'}"
        for engine, count in editing_gpus.items()
    }
