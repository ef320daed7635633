"""RadVLM's part of the plan of a run, from its data sources to the evaluation of its models."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import SPLITS
from cxr.ils.masks.settings import Rules
from cxr.radvlm.evaluation.other_models import load_adapters
from cxr.radvlm.instructions.mix import MixRow, mix_rows
from cxr.radvlm.settings import COHORT, FORMATS
from cxr.reporting.settings import JPEG_QUALITY
from cxr.workflow.engine_files import read_declaration
from cxr.workflow.models import RULES, ModelJobs, model_options
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings
from cxr.workflow.settings.changed_keys import MIMIC_ILS

WITHOUT_MODEL = (RULES, "none")
"""Engines of the stage ``filtered`` that need no language model. They share a conda environment."""
SOURCE_TABLES = (
    "*.csv", "*.csv.gz", "*.json", "annotations/*.csv", "annotations/*.csv.gz", "chexbert_labels/*.json",
    "silver_dataset/splits/*.csv",
)  # fmt: skip
"""Patterns of the tables in the folder of a source. If one changes, the source is read again. Images are not tables."""
PARTS = ("train", "test")
"""Parts of a source that may get their conversations from different models. The split validate belongs to train."""
CONVERSATION_TEMPERATURE = 0.7
"""Sampling temperature of conversations, which should vary."""
GREEN_LIMITS = {"context": 4096, "max_tokens": 1024, "temperature": 0.0}
"""Token limits of GREEN's model (authors' code), with temperature 0 for greedy decoding."""
TEST_SET, EXCHANGED_SET, ILS_SET = "radvlm_test", "radvlm_exchanged", "radvlm_ils"
"""Sets of questions: a mix's test samples, the same samples with other images, and the pairs of ILS's evaluation."""
FACTS, CHEXBERT = "facts", "chexbert"
SCORE_KEYS = ("label_match", "report_metrics", "reference", "failed")
"""Settings of ``radvlm.evaluation`` that the scores depend on."""
ROSALIA, RADVLM = "rosalia:", "radvlm"
TOOL, HEAD = "tool", "head"


class ConversationsPlan:
    """Sources, files and options for making RadVLM's conversations."""

    def __init__(self, settings: Settings, formats: Mapping[str, str]):
        """``formats``: {source in use: format of its files}."""
        section, sources = settings.radvlm.conversations, settings.radvlm.sources.list
        kinds = {
            name: ("standard", "grounded") if name == COHORT else FORMATS[kind].conversations
            for name, kind in formats.items()
        }
        # {source: kinds of its conversations}
        self.kinds = {name: conversations for name, conversations in kinds.items() if conversations}
        guests = (name for name in self.kinds if name != COHORT and FORMATS[formats[name]].on_mimic)
        # {source without images: the source whose images it describes}
        self.hosts = {name: host for name in guests if (host := sources[name].pictures) in formats}
        self.options = {part: _conversation_options(settings, part) for part in PARTS}  # {part: its options}
        is_same_model = self.options["train"]["model"] == self.options["test"]["model"]
        values = {"source": list(self.kinds), "part": list(PARTS) if is_same_model else ["{part}"]}
        self.jobs = ModelJobs(settings.llm, values, is_asked=section.engine != RULES)
        # JSONL files of ILS's dataset, whose masks some turns of a conversation request
        self.pairs = [f"results/dataset/{settings.thresholds.build[0]}/{split}.jsonl" for split in SPLITS]

    def inputs(self, source: str) -> dict[str, object]:
        """Return {name of an input: files} from which the conversations of a source are made."""
        described = [source, *([self.hosts[source]] if source in self.hosts else [])]
        guests = [guest for guest, host in self.hosts.items() if host == source]
        return {
            "images": f"results/radvlm/sources/{source}/images.parquet",
            "facts": [f"results/radvlm/sources/{name}/facts.parquet" for name in described],
            "texts": [f"results/radvlm/filtered/{name}/texts.jsonl" for name in described],
            "phrases": f"results/radvlm/filtered/{source}/phrases.jsonl",
            "elsewhere": [f"results/radvlm/filtered/{name}/phrases.jsonl" for name in guests],
            "pairs": self.pairs if source == COHORT else [],
        }

    def part_options(self, source: str, part: str) -> dict:
        """Return the options for the conversations of one part ("train" or "test") of a source."""
        return self.options[part] | {"kinds": list(self.kinds[source])}

    def model_options(self, wildcards: object) -> dict[str, object]:
        """Return the options of a job that loads the language model. The option "works" lists the conversations to
        make, as dicts with the source, its part, the kinds of conversation and the files to read."""
        values = self.jobs.values(wildcards)
        works = [
            {"source": source, "part": part, "kinds": list(self.kinds[source]), "files": self.inputs(source)}
            for source in values["source"]
            for part in values["part"]
        ]
        return self.options[values["part"][0]] | {"works": works}

    def model_inputs(self, wildcards: object) -> list[str]:
        """Return the files that a job with the language model reads."""
        files = [file for work in self.model_options(wildcards)["works"] for file in work["files"].values()]
        return sorted({path for file in files for path in ([file] if isinstance(file, str) else file)})


def _conversation_options(settings: Settings, part: str) -> dict:
    """Return the options for the conversations of ``part``. "model": options of the language model, {} without one."""
    section = settings.radvlm.conversations
    changes = section.test_llm.as_dict() if part == "test" and section.test_llm.model else {}
    asks_model = section.engine != RULES
    model_options = _shared_model(settings, temperature=CONVERSATION_TEMPERATURE, **changes) if asks_model else {}
    return section.as_dict(without=("test_llm",)) | {"seed": settings.seed, "model": model_options}


class RadvlmPlan:
    """Files and options for RadVLM's rules, from the settings. Paths are relative to Snakemake's working directory."""

    def __init__(self, settings: Settings, shards: Sequence[str]):
        """``shards``: names of the cohort's shards. Raises UserError for a source with missing files."""
        section = settings.radvlm.sources.as_dict()
        self.seed, self.shards = settings.seed, list(shards)
        # {external source: its settings}; the sources in use; {source in use: its format}
        self.declared, self.sources = section["list"], section["use"]
        for name, source in self.declared.items():
            _check_source_files(name, source)
        self.formats = {
            name: settings.cohort.source if name == COHORT else self.declared[name]["format"] for name in self.sources
        }
        mixes = settings.radvlm.instructions.as_dict()["mixes"]
        for name in settings.release.mixes:
            if name not in mixes:
                raise UserError(
                    f"release.mixes names {name!r}, but radvlm.instructions has the mixes {', '.join(mixes)}: name one "
                    "of them"
                )
        self.mixes = _read_mixes(mixes, self.formats)  # {mix: its rows, one per task and source}
        # threshold set for the masks of the cohort, which is the source ``own``
        self.thresholds = settings.thresholds.build[0]
        # {mix: threshold set of its ILS pairs, or mimic_ils for an imported dataset}
        self.pairs_by_mix = {name: mix["thresholds"] or self.thresholds for name, mix in mixes.items()}
        self.own_options = {name: section[name] for name in ("labels", "weak_hedges", "uncertain")}
        self.own_options["smallest"] = Rules.min_component_px
        filtered = settings.radvlm.filtered
        asks_filter = filtered.engine not in WITHOUT_MODEL
        self.filter_options = filtered.as_dict() | {"model": _shared_model(settings) if asks_filter else {}}
        filtered_sources = {"source": self.sources if len(self.sources) > 1 else []}
        self.filter_jobs = ModelJobs(settings.llm, filtered_sources, is_asked=asks_filter)
        # options that all external sources share
        self.reading_options = {
            "uncertain": section["uncertain"], "split": section["split"],
            "max_characters": settings.reports.max_characters,
            "section_overrides": settings.reports.section_overrides,
            "seed": settings.seed, "shares": settings.cohort.split_shares(),
        }  # fmt: skip
        self.conversations = ConversationsPlan(settings, self.formats)
        # options of the model that labels the cohort's reports, {} if rules or a table give the labels
        self.label_options = settings.radvlm.chexbert.as_dict() if section["labels"] == CHEXBERT else {}
        self.label_files = {"weights": "results/weights/chexbert.safetensors"} if self.label_options else {}
        # modules that read sources; {source: folder of the frames of its images}
        self.source_modules = sorted({f"radvlm.sources.{kind.reader.partition('.')[0]}" for kind in FORMATS.values()})
        self.folders = {source: str(Path(self.frames_of(source)[0]).parent) for source in self.sources}
        # {source: family}; sources of one family share their subjects
        kinds = {source: FORMATS.get(kind) for source, kind in self.formats.items()}
        self.families = {source: (kind and kind.family) or source for source, kind in kinds.items()}

    def source_pattern(self, *, mimic: bool) -> str:
        """Return a regular expression for the external sources that use (``mimic``) or do not use MIMIC-CXR images."""
        names = [
            re.escape(name) for name, source in self.declared.items() if FORMATS[source["format"]].on_mimic == mimic
        ]
        return "|".join(names) or "(?!)"

    def source_tables(self, source: str) -> list[str]:
        """Return the tables from which a source is read, without its images and reports."""
        path = Path(self.declared[source]["path"])
        if path.is_file():
            return [str(path)]
        return sorted({str(file) for pattern in SOURCE_TABLES for file in path.glob(pattern)})

    def source_options(self, source: str) -> dict:
        """Return the options of reading an external source."""
        return dict(self.reading_options) | {"name": source, "source": self.declared[source]}

    def frames_of(self, source: str) -> list[str]:
        """Return the HDF5 files with the 512 × 512 frames of a source's images."""
        is_guest = source != COHORT and FORMATS[self.formats[source]].on_mimic
        name = self.declared[source]["pictures"] if is_guest else source
        folder = "results/frames" if name == COHORT else f"results/radvlm/sources/{name}/frames"
        return [f"{folder}/{shard}.h5" for shard in self.shards]

    def all_frames(self) -> list[str]:
        """Return the HDF5 files with the 512 × 512 frames of the images of all sources in use."""
        return sorted({path for source in self.sources for path in self.frames_of(source)})

    def _tasks(self, mix: str, source: str) -> set[str]:
        return {row.task for row in self.mixes[mix] if row.source == source}

    def conversation_sources(self, mix: str) -> list[str]:
        """Return the sources from which an instruction mix takes conversations."""
        sources = [source for source in self.sources_of(mix) if source in self.conversations.kinds]
        return [name for name in sources if any(task.startswith("conversation") for task in self._tasks(mix, name))]

    def sources_of(self, mix: str) -> list[str]:
        """Return the sources from which an instruction mix takes samples."""
        return [source for source in self.sources if self._tasks(mix, source)]

    def ils_files(self, mix: str, source: str) -> dict[str, list[str]]:
        """Return {"pairs": files, "masks": files} of ILS's dataset, both [] if a mix takes no pairs of ``source``."""
        tasks = self._tasks(mix, source)
        if source != COHORT or not any(task.startswith("ils_") or task == "absent_grounding" for task in tasks):
            return {"pairs": [], "masks": []}
        thresholds = self.pairs_by_mix[mix]
        lines = [f"results/dataset/{thresholds}/{split}.jsonl" for split in SPLITS]
        return {"pairs": lines, "masks": self._masks_of(thresholds)}

    def _masks_of(self, thresholds: str) -> list[str]:
        names = [MIMIC_ILS] if thresholds == MIMIC_ILS else self.shards
        return [f"results/masks/{thresholds}/{name}.h5" for name in names]

    def segmentation_masks(self, mix: str) -> list[str]:
        """Return the mask files for the token [SEG] in the samples of a mix: masks of ILS pairs and of conversations.
        The list is empty if the cohort is no source."""
        sets = dict.fromkeys([self.thresholds, self.pairs_by_mix[mix]])
        return [path for thresholds in sets for path in self._masks_of(thresholds)] if COHORT in self.sources else []

    def part_options(self, mix: str, source: str) -> dict:
        """Return the options for making the samples of one source for a mix."""
        rows = [asdict(row) for row in self.mixes[mix] if row.source == source]
        return {"source": source, "rows": rows, "smallest": Rules.min_component_px, "seed": self.seed}

    def mix_options(self, mix: str) -> dict:
        """Return the options for joining the samples of all sources to an instruction mix."""
        return {"rows": list(map(asdict, self.mixes[mix])), "families": self.families, "seed": self.seed}


def _shared_model(settings: Settings, **changes: object) -> dict:
    """Return the options of the language model ``radvlm.llm``, in which ``changes`` replace single settings."""
    return model_options(settings, "radvlm.llm", settings.radvlm.llm.as_dict() | changes)


def _read_mixes(mixes: Mapping[str, Mapping], formats: Mapping[str, str]) -> dict[str, list[MixRow]]:
    """Return {mix: its rows, one per task and source}. Raises UserError if a mix names a source that is not in use or
    that cannot give samples of the task. ``formats``: {source in use: format of its files}."""
    kind_by_source = {source: COHORT if source == COHORT else kind for source, kind in formats.items()}
    for name, mix in mixes.items():
        for task, sources in mix["tasks"].items():
            for source in sources:
                key = f"radvlm.instructions.mixes.{name}.tasks.{task}"
                if source not in kind_by_source:
                    raise UserError(
                        f"{key} names the source {source!r}, but radvlm.sources.use has only "
                        f"{', '.join(kind_by_source)}: add it there"
                    )
                if task.startswith("ils_") and source != COHORT:
                    raise UserError(
                        f"{key} names the source {source!r}, but only {COHORT!r} has an ILS dataset: remove the source"
                    )
    return {name: mix_rows(mix, kind_by_source) for name, mix in mixes.items()}


def _check_source_files(name: str, source: Mapping[str, str]) -> None:
    key = f"radvlm.sources.list.{name}"
    if FORMATS[source["format"]].is_file:
        existing_file(f"{key}.path", source["path"])
    elif not (source["format"] == "ms_cxr" and Path(source["path"]).is_file()):
        existing_folder(f"{key}.path", source["path"])
    if source["pictures"] and not FORMATS[source["format"]].on_mimic:
        existing_folder(f"{key}.pictures", source["pictures"])
    if source["reports"]:
        existing_folder(f"{key}.reports", source["reports"])
    try:
        groups = re.compile(source["subject"]).groups
    except re.error as error:
        raise UserError(
            f"{key}.subject is {source['subject']!r}, which is no regular expression ({error}): correct it"
        ) from None
    if source["subject"] and not groups:
        raise UserError(
            f"{key}.subject is {source['subject']!r}, a regex without a group: put the subject's part in parentheses"
        )


class AnnotatorPlan:
    """Files and options of an annotator: a model that labels or scores generated reports, such as CheXbert or GREEN."""

    def __init__(self, name: str, settings: Settings):
        """``name``: name of the annotator. Raises UserError for a missing file."""
        plain = settings.radvlm.evaluation.as_dict()
        section = plain[name] if name in plain else settings.radvlm.chexbert.as_dict()
        read_constant = partial(read_declaration, "cxr.radvlm.evaluation", f"annotate_{name}")
        key, model = f"radvlm.evaluation.{name}", section["model"]
        # files that it reads besides samples and answers
        self.files = read_constant("INPUTS", {}) | {
            file: str(existing_file(f"{key}.{file}", section[file])) for file in read_constant("FILES", ())
        }
        # files in its model's folder
        self.placed = [
            str(existing_file(f"{key}.model", str(Path(model) / file))) for file in read_constant("PLACED", ())
        ]
        # last part of the name of its conda environment; GPUs of the language model that its job loads
        self.environment, asks_model = read_constant("ENVIRONMENT", name), read_constant("LLM", False)
        self.gpus = ModelJobs(settings.llm, {}, is_asked=asks_model).gpus
        engine = f"{name} {model.rstrip('/').rpartition('/')[2]} {section.get('revision', '')}".strip()
        if asks_model:
            llm = model_options(settings, key, section | GREEN_LIMITS)
            section = {"llm": llm, "prompt_bytes": section["prompt_bytes"]}
        self.options = {"annotator": name, "engine": engine, "reference": plain["reference"]}
        self.options["engine_settings"] = section


class EvaluationPlan:
    """Models, judge, annotators and files of RadVLM's evaluation."""

    def __init__(self, settings: Settings, vlm: VlmPlan):
        """Derive the plan. Without RadVLM's test set in ``vlm``, only models of ``predictions`` are scored, on the test
        samples of the first mix. Raises UserError for an unknown run or a missing file."""
        self.section = section = settings.radvlm.evaluation
        self.seed, self.replicates = settings.seed, settings.replicates
        mixes = settings.radvlm.instructions.mixes
        self.runs = section.runs if TEST_SET in vlm.sets else []  # runs of vlm.tuning that are scored
        # runs and other models (radvlm.evaluation.predictions) that are scored
        self.scored = [*self.runs, *section.predictions]
        for name in self.runs:
            if name not in vlm.runs:
                run_names = ", ".join(vlm.runs) or "none"
                raise UserError(
                    f"radvlm.evaluation.runs names {name!r}, but the runs of vlm.tuning are {run_names}: choose one"
                )
        for name, prediction in section.predictions.items():
            existing_file(f"radvlm.evaluation.predictions.{name}.path", prediction.path)
        for name, path in section.annotations.items():
            existing_file(f"radvlm.evaluation.annotations.{name}", path)
        default = f"results/radvlm/instructions/{next(iter(mixes))}/test.jsonl"
        # JSONL files of the test set: with the samples that are asked, and with all
        self.lines, self.all_lines = vlm.sets.get(TEST_SET, default), vlm.all_lines.get(TEST_SET, default)
        # training samples of the tested mix, from which blind answers (without the image) are made
        self.train_lines = str(Path(self.all_lines).with_name("train.jsonl"))
        # [JSONL file of the same samples with other images], [] if they are not asked
        self.exchanged_lines = [vlm.sets[EXCHANGED_SET]] if EXCHANGED_SET in vlm.sets else []
        # files with the numbers of asked and of all samples, [] if all are asked
        self.draw, self.exchanged_draw = vlm.draw_files(TEST_SET, "tsv"), vlm.draw_files(EXCHANGED_SET, "tsv")
        # {run: tasks that it is tuned on, () for all}
        self.tasks = {name: vlm.runs[name]["options"].get("tasks", ()) for name in self.runs}
        evaluated = {Path(self.all_lines).parent.name, *(vlm.runs[name]["mix"] for name in self.runs)}
        self.mixes = [mix for mix in mixes if mix in evaluated]  # mixes that a run is tuned or tested on
        asks_judge, changes = section.judge != FACTS, section.llm.as_dict() if section.llm.model else {}
        # options of the judge's language model, {} without one; its GPUs if the job loads it
        self.judge_model = _shared_model(settings, **changes) if asks_judge else {}
        self.judge_gpus = ModelJobs(settings.llm, {}, is_asked=asks_judge).gpus
        self.annotators = {name: AnnotatorPlan(name, settings) for name in section.annotators}
        sources = settings.radvlm.sources.use
        # sources whose original reports are the references of generated reports
        self.text_sources = [] if section.reference == "filtered" else sources
        shows_texts = settings.cohort.source == "embedded" and list(sources) == [COHORT]  # synthetic reports
        self.gallery = {
            "model": self.runs[0] if self.runs else "", "quality": JPEG_QUALITY, "seed": settings.seed,
            "withheld": "report_text" in settings.release.withhold and not shows_texts,
        }  # fmt: skip

    def answers(self, name: str) -> str:
        """Return the file with the answers of a run or of another model to the test samples."""
        is_other = name in self.section.predictions
        return (
            f"results/radvlm/evaluation/{name}/answers.jsonl"
            if is_other
            else f"results/vlm/{name}/answers/{TEST_SET}.jsonl"
        )

    def exchanged_files(self, name: str) -> dict[str, Sequence[str]]:
        """Return {name of an input: files} of the test with exchanged images: samples, answers, counts of samples.
        All files are [] for a model that is not asked about exchanged images, as the models of ``predictions``."""
        is_asked = self.exchanged_lines and name in self.runs
        answers = [f"results/vlm/{name}/answers/{EXCHANGED_SET}.jsonl"]
        files = {"lines": self.exchanged_lines, "answers": answers, "draw": self.exchanged_draw}
        return {f"exchanged_{kind}": paths if is_asked else [] for kind, paths in files.items()}

    def score_options(self, name: str) -> dict:
        """Return the options for scoring a run or another model."""
        tasks = self.tasks.get(name, ())
        if name in self.section.predictions and not self.section.beyond:
            tasks = load_adapters()[self.section.predictions[name].adapter].tasks
        keys = self.section.as_dict()
        options = {"replicates": self.replicates, "seed": self.seed, "tasks": list(tasks)}
        return {key: keys[key] for key in SCORE_KEYS} | options


class SegmentationPlan:
    """Masks for RadVLM's answers, from ROSALIA as a tool or from a segmentation head, and their scores by ILS."""

    def __init__(self, settings: Settings, vlm: VlmPlan, ils_runs: Collection[str]):
        """Derive the plan. If a scored run can get masks, add ILS's pairs to the sets of questions of ``vlm``.
        ``ils_runs``: names of ``training.runs``. Raises UserError for an unknown segmenter or a name in use."""
        segmenter = settings.radvlm.evaluation.segmenter
        # ROSALIA's run, "" without one
        self.tool = tool = segmenter.removeprefix(ROSALIA) if segmenter.startswith(ROSALIA) else ""
        if tool and tool not in ils_runs:
            raise UserError(
                f"radvlm.evaluation.segmenter is {segmenter!r}, but the runs of training are {', '.join(ils_runs)}: "
                "name one of them"
            )
        scored = settings.radvlm.evaluation.runs if TEST_SET in vlm.sets else []
        # scored runs with a segmentation head; scored runs for whose answers ROSALIA draws the masks
        self.heads = [run for run in scored if run in vlm.with_head]
        self.runs = [run for run in scored if tool and run not in self.heads]
        # runs for whose answers to vlm_ask ROSALIA draws the masks
        self.image_runs = [
            name for name, run in vlm.runs.items() if tool and run["system"] == RADVLM and name not in vlm.with_head
        ]
        # JSONL file of the ILS pairs that a run is asked, "" if the cohort is no source
        self._thresholds, sources = settings.thresholds.build[0], settings.radvlm.sources.use
        self.pairs = f"results/dataset/{self._thresholds}/{settings.inference.split}.jsonl" if COHORT in sources else ""
        joins = [(run, HEAD) for run in self.heads] + [(run, TOOL) for run in self.runs]
        # {row of ILS's evaluation: (run, source of its masks, tool or head)}
        self.masked = {f"{run}_{join}": (run, join) for run, join in joins if self.pairs}
        for name in self.masked:
            if name in ils_runs or name in settings.evaluation.predictions:
                raise UserError(
                    f"training.runs or evaluation.predictions has {name!r}, which names a RadVLM model: rename one"
                )
        if asked_runs := [run for run, _ in self.masked.values()]:
            vlm.add_set(ILS_SET, "results/radvlm/evaluation/ils.jsonl", RADVLM, asked_runs)

    @property
    def rows(self) -> dict[str, dict]:
        """{row: its threshold set, titles and files} of the rows that RadVLM adds to ILS's table of models."""
        rows = {}
        for name, (run, join) in self.masked.items():
            title = f"RadVLM + ILS, {join} ({run})"
            stem = f"results/radvlm/evaluation/{run}/"
            stem += f"head/{ILS_SET}" if join == HEAD else f"segmenter/{ILS_SET}/{COHORT}"
            files = {"predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}
            rows[name] = {"test": self._thresholds, "beside": title, "title": title} | files
        return rows
