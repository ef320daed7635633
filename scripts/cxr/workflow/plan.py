"""The plan of a run: one object with all values that the rules derive from the settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cxr.base.errors import existing_file
from cxr.base.seeds import shard_names
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort.check import check_inputs, check_lists, source_files
from cxr.imaging.cohort.settings import CohortSettings
from cxr.imaging.weights.catalogue import check_placed, list_placed_files, plan_models, rule_params, select_converted
from cxr.workflow import params
from cxr.workflow.engine_files import engine_inputs, environment_file, num_gpus, users_files
from cxr.workflow.models import ModelJobs
from cxr.workflow.params import ENGINE_STAGES, REQUEST_KEYS
from cxr.workflow.plan_ils import IlsPlan, run_options
from cxr.workflow.plan_medground import MedgroundPlan
from cxr.workflow.plan_radvlm import EvaluationPlan, RadvlmPlan, SegmentationPlan
from cxr.workflow.plan_reporting import ReportingPlan
from cxr.workflow.plan_semisyn import SemisynPlan
from cxr.workflow.plan_vlm import VlmPlan, read_request
from cxr.workflow.settings import Settings, read


class WeightsPlan:
    """Options and files of the rules that fetch or convert published model weights."""

    def __init__(self, settings: Settings, engine_files: Mapping[str, dict], ils: IlsPlan, vlm: VlmPlan):
        """``engine_files``: {stage: input files of its engine}. Raises UserError for weights that no rule can make."""
        folder, pins = settings.weights.folder, settings.weights.sha256
        heads = {f"vlm.tuning.runs.{name}": dict(enumerate(vlm.runs[name]["sam"])) for name in vlm.with_head}
        inputs = {stage: files for stage, files in engine_files.items() if stage != "training"}
        # weights (artefacts) that the chosen engines and runs need
        self.needed = select_converted(inputs | ils.starts | heads)
        user_by_artefact = {
            Path(files["lisa"]).name: f"training.runs.{name}"
            for name, files in ils.starts.items()
            if ils.runs[name]["weights"] and "lisa" in files
        }
        is_classifier = settings.semisyn.healthy.classifier == "xrv"
        user_by_artefact |= {
            "xrv": "semisyn.healthy.classifier 'xrv'" if is_classifier else "semisyn.realism.features with 'xrv'",
            "inception": "semisyn.realism.features with 'inception'",
            "chexbert": "radvlm's 'chexbert'",
        }
        if head_keys := [key for key, files in heads.items() if files]:
            user_by_artefact["sam"] = f"{head_keys[0]}.segmentation 'head'"
        check_placed(self.needed, folder, user_by_artefact)
        # {artefact: options of its rule}, and {artefact: files that the user placed by hand}
        self.options, self.placed = rule_params(pins, folder), list_placed_files(folder)
        # {model of the catalogue that a setting names: its files and options}
        self.models = plan_models(_used_models(settings), pins)


def _used_models(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return {setting: (model, revision)} of the models that vision-language runs and annotators of reports load."""
    runs = {f"vlm.tuning.runs.{name}": run for name, run in settings.vlm.tuning.runs.items()}
    evaluation = settings.radvlm.evaluation
    annotators = [name for name in evaluation.annotators if name != "green" or settings.llm.transport == "offline"]
    # some annotators have no section in radvlm.evaluation
    sections = {f"radvlm.evaluation.{name}": getattr(evaluation, name, None) for name in annotators}
    return {
        f"{key}.model": (section.model, getattr(section, "revision", ""))
        for key, section in (runs | sections).items()
        if section
    }


class Plan:
    """All values that a rule may use. Paths are relative to Snakemake's working directory.

    A rule uses only the ``options`` of its own stage, so that a changed setting reruns only this stage and later ones.
    """

    def __init__(self, config: dict, configfiles: Sequence[Path]):
        """Derive the plan from ``config``, which Snakemake read from ``configfiles`` and the command line.
        Raises SettingsError or UserError for a wrong setting, before any job."""
        settings = read({key: value for key, value in config.items() if key not in REQUEST_KEYS}, configfiles)
        self.settings, self.splits = settings, SPLITS
        self.options = options = params.stage_options(settings)  # {stage: its options as plain Python values}
        cohort = CohortSettings.from_dict({key: value for key, value in options["cohort"].items() if key != "seed"})
        # the manifest of the embedded cohort does not exist yet, because a job makes it
        (check_lists if settings.cohort.source == "embedded" else check_inputs)(cohort)
        self.cohort_files = source_files(cohort)  # {name of an input: files that the cohort is read from}
        # names of the cohort's shards; {threshold set: its thresholds}; threshold sets whose dataset is built
        self.shards, self.sets = shard_names(cohort.shards), options["ablation"]["sets"]
        self.build = settings.thresholds.build
        # {stage: its engine}, {stage: its conda environment}, {stage: files that the engine reads besides the stage's
        # inputs}; engine_sources: {stage: files that additional rules of the engine read}
        self.engines = {stage: options[stage]["engine"] for stage in ENGINE_STAGES}
        self.environments = {stage: environment_file(stage, engine) for stage, engine in self.engines.items()}
        self.engine_files = {stage: engine_inputs(stage, name, options[stage]) for stage, name in self.engines.items()}
        if settings.anomaly.images == "with_findings":
            self.engine_files["anomaly"] |= {"cohort": "results/cohort/{shard}.parquet"}
            self.engine_files["anomaly"] |= {"reports": "results/reports/{shard}.jsonl"}
        if settings.boxes.engine == "table":
            self.engine_files["boxes"] = {"table": str(existing_file("boxes.table", settings.boxes.table))}
        self.engine_sources = {
            stage: users_files(stage, name, options[stage], "SOURCES") for stage, name in self.engines.items()
        }
        self.semisyn = SemisynPlan(settings, options, self.shards)
        self.medground = MedgroundPlan(settings, self.shards, list(self.sets))
        self.radvlm = RadvlmPlan(settings, self.shards)
        compute, mixes = settings.compute, list(settings.radvlm.instructions.mixes)
        self.vlm = VlmPlan(settings.vlm, compute.device, compute.gpus, mixes, options["decoding"])
        self.evaluation = EvaluationPlan(settings, self.vlm)
        self.segmentation = SegmentationPlan(settings, self.vlm, list(run_options(settings)))
        self.ils = IlsPlan(
            settings, config, self.shards, self.engine_files["training"], self.segmentation.rows, list(self.vlm.runs)
        )
        net_files = self.engine_files | {"semisyn_healthy": self.semisyn.healthy_files}
        net_files |= {"radvlm_sources": self.radvlm.label_files} | self.semisyn.realism.files
        net_files |= {name: annotator.files for name, annotator in self.evaluation.annotators.items()}
        self.weights = WeightsPlan(settings, net_files, self.ils, self.vlm)
        params.check_files(settings, self.ils.request["image"])
        # vision-language models whose answers to MedGround's zero-shot sources are scored
        uses = {source["use"] for source in self.medground.sources.values()}
        self.zero_shot_runs = self.vlm.asked_runs("medground_zero_shot") if "zero_shot" in uses else []
        self.vlm_request = read_request(config, self.vlm)  # the request of `snakemake vlm_ask`
        self.reporting = ReportingPlan(settings, config, self.ils.runs, self.ils.evaluated)
        # the jobs in which a language model reads reports
        self.structuring = ModelJobs(settings.llm, {"shard": self.shards})
        # {stage: GPUs of a job}; {stage: its SLURM group}, which holds either GPU jobs or CPU jobs
        self.gpus = self._stage_gpus()
        self.groups = self._groups()

    def _stage_gpus(self) -> dict[str, int]:
        settings = self.settings
        gpus = {stage: num_gpus(stage, engine, settings) for stage, engine in self.engines.items()}
        with_deepspeed = self.options["training"][self.engines["training"]]["runner"] == "deepspeed"
        gpus["training"] *= settings.compute.gpus if with_deepspeed else 1
        return gpus | {"reports": self.structuring.gpus, "paraphrase": self.ils.paraphrasing.gpus}

    def _groups(self) -> dict[str, str]:
        """Return {stage: its SLURM group}.

        SemiSynCXR runs some stages again on edited images, and these jobs have other groups. In one group with the
        jobs on the cohort's images they would depend on their own group, which could then never start.
        """
        device = {stage: "gpu" if count else "cpu" for stage, count in self.gpus.items()}
        groups = {stage: f"{stage}-{name}" for stage, name in device.items()}
        groups |= {f"semisyn_realism_{stage}": f"semisyn_realism-{device[stage]}" for stage in ("organs", "boxes")}
        for engine, count in self.semisyn.editing.gpus.items():
            groups[f"semisyn_editing_{engine}"] = f"semisyn_editing-{'gpu' if count else 'cpu'}"
        return groups

    def image_shards(self, system: str) -> list[str]:
        """Return the HDF5 files with the images of a system's samples: RadVLM's frames, else MedGround's images."""
        if system == "radvlm":
            return self.radvlm.all_frames()
        return [
            f"results/medground/sources/{source}/{shard}.h5"
            for source in self.medground.sources
            for shard in self.medground.shards
        ]

    def image_folders(self, system: str) -> dict[str, str]:
        """Return {source: folder with its frames} for RadVLM, whose sources may share images. Otherwise return {}."""
        return self.radvlm.folders if system == "radvlm" else {}

    def original_tables(self, run: str) -> list[str]:
        """Return the tables that list the original image files for a vision-language run, [] if it uses frames."""
        sources = self.radvlm.sources if self.vlm.runs[run]["options"]["original"] else []
        return [f"results/radvlm/sources/{source}/images.parquet" for source in sources]

    def segmentation_masks(self, run: str) -> list[str]:
        """Return the mask files for the token [SEG] in a run's samples, [] if the run has no segmentation head."""
        return self.radvlm.segmentation_masks(self.vlm.runs[run]["mix"]) if run in self.vlm.with_head else []

    def shards_of(self, path: str, wildcards: Mapping[str, str]) -> list[str]:
        """Return the names of all shards of the result at ``path``. ``wildcards``: the wildcards of its rule."""
        if path.startswith("results/medground/"):
            return self.medground.shards
        if path.startswith("results/semisyn/"):
            config = wildcards.get("config")
            return self.semisyn.shards_of(config) if config else [*self.shards, *self.semisyn.trial_shards]
        return self.shards

    def built(self, wildcards: object) -> list[str]:
        """Return the threshold sets to build. As an input function, it halves the time to read the Snakefile."""
        return self.build
