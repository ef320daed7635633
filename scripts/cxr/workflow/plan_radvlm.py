"""RadVLM's part of the plan: sources, filtered text, conversations, mixes, evaluation, and masks for its answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import SPLITS
from cxr.ils.masks.settings import Rules
from cxr.radvlm.evaluation.other_models import load_adapters
from cxr.radvlm.evaluation.settings import Evaluation
from cxr.radvlm.instructions.mix import MixRow, mix_rows
from cxr.radvlm.sources.settings import FORMATS, OWN
from cxr.reporting.settings import JPEG_QUALITY
from cxr.workflow.engine_files import read_declaration
from cxr.workflow.models import RULES, ModelJobs, model_options
from cxr.workflow.plan_vlm import VlmPlan, add_set
from cxr.workflow.settings import Settings
from cxr.workflow.settings.changed_keys import MIMIC_ILS

ROOT = "results/radvlm"
INSTRUCTIONS, EVALUATION = f"{ROOT}/instructions", f"{ROOT}/evaluation"
WITHOUT_MODEL = (RULES, "none")
"""Engines of the stage filtered that need no language model; they share an environment."""
SOURCE_TABLES = (
    "*.csv", "*.csv.gz", "*.json", "annotations/*.csv", "annotations/*.csv.gz", "chexbert_labels/*.json",
    "silver_dataset/splits/*.csv",
)  # fmt: skip
"""Files of a source's folder that its reader may read, and whose change reads it again; images are not among them."""
PARTS = ("train", "test")
"""Parts of a source whose conversations are made apart, since their models may differ; validate goes with train."""
CONVERSATION_TEMPERATURE = 0.7
"""Sampling temperature of conversations, which are to differ."""
GREEN_LIMITS = {"context": 4096, "max_tokens": 1024, "temperature": 0.0}
"""Limits of GREEN's model, in tokens (authors' code), and its greedy decoding."""
TEST_SET, EXCHANGED_SET, ILS_SET = "radvlm_test", "radvlm_exchanged", "radvlm_ils"
"""Sets of vlm.answers: test lines of a mix, the same about other images, and all pairs that ILS's evaluation scores."""
FACTS, CHEXBERT = "facts", "chexbert"
SCORE_KEYS = ("label_match", "report_metrics", "reference", "failed", "replicates")
"""Keys that the scores depend on."""
ROSALIA, RADVLM = "rosalia:", "radvlm"
TOOL, HEAD = "tool", "head"


@dataclass(frozen=True)
class ConversationsPlan:
    """How RadVLM's conversations are made."""

    kinds: Mapping[str, Sequence[str]]  # {source: kinds of its conversations}
    hosts: Mapping[str, str]  # {source: the source whose images it describes}
    jobs: ModelJobs
    options: Mapping[str, dict]  # {part: its options}
    pairs: Sequence[str]  # lines of ILS's dataset, whose masks are requested in turns

    def inputs(self, source: str) -> dict[str, object]:
        """Return {name: files} that the conversations of a source are made from."""
        described = [source, *([self.hosts[source]] if source in self.hosts else [])]
        guests = [guest for guest, host in self.hosts.items() if host == source]
        return {
            "images": f"{ROOT}/sources/{source}/images.parquet",
            "facts": [f"{ROOT}/sources/{name}/facts.parquet" for name in described],
            "texts": [f"{ROOT}/filtered/{name}/texts.jsonl" for name in described],
            "phrases": f"{ROOT}/filtered/{source}/phrases.jsonl",
            "elsewhere": [f"{ROOT}/filtered/{name}/phrases.jsonl" for name in guests],
            "pairs": self.pairs if source == OWN else [],
        }

    def part_options(self, source: str, part: str) -> dict:
        """Return the options of a part of a source."""
        return self.options[part] | {"kinds": list(self.kinds[source])}

    def model_options(self, wildcards: object) -> dict[str, object]:
        """Return the options of a job that loads the model; ``works``: source, part, kinds and files of its outputs."""
        values = self.jobs.values(wildcards)
        works = [
            {"source": source, "part": part, "kinds": list(self.kinds[source]), "files": self.inputs(source)}
            for source in values["source"]
            for part in values["part"]
        ]
        return self.options[values["part"][0]] | {"works": works}

    def model_inputs(self, wildcards: object) -> list[str]:
        """Return the files that such a job reads."""
        files = [file for work in self.model_options(wildcards)["works"] for file in work["files"].values()]
        return sorted({path for file in files for path in ([file] if isinstance(file, str) else file)})


@dataclass(frozen=True)
class RadvlmPlan:
    """What RadVLM's rules take from the settings. Paths are relative to Snakemake's working directory."""

    seed: int
    sources: Sequence[str]  # in use
    declared: Mapping[str, dict]  # {external source: its settings}
    formats: Mapping[str, str]  # {source in use: its format}
    shards: Sequence[str]  # of the cohort
    thresholds: str  # the threshold set whose masks the source own has
    own_options: Mapping[str, object]  # of reading the source own
    filter_options: Mapping[str, object]  # of the stage filtered
    reading_options: Mapping[str, object]  # that all external sources share
    filter_jobs: ModelJobs
    mixes: Mapping[str, list[MixRow]]  # {mix: its rows}
    pairs_by_mix: Mapping[str, str]  # {mix: threshold set of its ILS pairs, or the release}
    conversations: ConversationsPlan
    label_options: Mapping[str, str]  # of the model that labels the cohort, {} if rules or a table label

    @property
    def label_files(self) -> dict[str, str]:
        """{name: file} of the model that labels the cohort's reports."""
        return {"weights": "results/weights/chexbert.safetensors"} if self.label_options else {}

    @property
    def families(self) -> dict[str, str]:
        """{source: family}; a source that shares its subjects with no other format is its own family."""
        kinds = {source: FORMATS.get(kind) for source, kind in self.formats.items()}
        return {source: (kind and kind.family) or source for source, kind in kinds.items()}

    @property
    def source_modules(self) -> list[str]:
        """Modules that read sources."""
        return sorted({f"radvlm.sources.{kind.reader.partition('.')[0]}" for kind in FORMATS.values()})

    @property
    def folders(self) -> dict[str, str]:
        """{source: folder of the shards that show its images}."""
        return {source: str(Path(self.frames_of(source)[0]).parent) for source in self.sources}

    def source_pattern(self, *, mimic: bool) -> str:
        """Return a pattern of the external sources about images of MIMIC-CXR, or of all others."""
        names = [
            re.escape(name) for name, source in self.declared.items() if FORMATS[source["format"]].on_mimic == mimic
        ]
        return "|".join(names) or "(?!)"

    def source_tables(self, source: str) -> list[str]:
        """Return the files that a source is read from, without images and reports."""
        path = Path(self.declared[source]["path"])
        if path.is_file():
            return [str(path)]
        return sorted({str(file) for pattern in SOURCE_TABLES for file in path.glob(pattern)})

    def source_options(self, source: str) -> dict:
        """Return the options of reading an external source."""
        return dict(self.reading_options) | {"name": source, "source": self.declared[source]}

    def external_frames(self) -> list[str]:
        """Return the frames of the external sources in use, those of MIMIC-CXR once."""
        return sorted({path for source in self.sources if source != OWN for path in self.frames_of(source)})

    def frames_of(self, source: str) -> list[str]:
        """Return the shards of frames that show the images of a source."""
        is_guest = source != OWN and FORMATS[self.formats[source]].on_mimic
        name = self.declared[source]["pictures"] if is_guest else source
        folder = "results/frames" if name == OWN else f"{ROOT}/sources/{name}/frames"
        return [f"{folder}/{shard}.h5" for shard in self.shards]

    def all_frames(self) -> list[str]:
        """Return the shards of frames that show the images of all sources in use."""
        return sorted({path for source in self.sources for path in self.frames_of(source)})

    def _tasks(self, mix: str, source: str) -> set[str]:
        return {row.task for row in self.mixes[mix] if row.source == source}

    def conversation_sources(self, mix: str) -> list[str]:
        """Return the sources about whose images a mix has conversations."""
        sources = [source for source in self.sources_of(mix) if source in self.conversations.kinds]
        return [name for name in sources if any(task.startswith("conversation") for task in self._tasks(mix, name))]

    def sources_of(self, mix: str) -> list[str]:
        """Return the sources that a mix has tasks of."""
        return [source for source in self.sources if self._tasks(mix, source)]

    def ils_files(self, mix: str, source: str) -> dict[str, list[str]]:
        """Return the lines of ILS's dataset that a mix takes from the cohort, and their masks."""
        tasks = self._tasks(mix, source)
        if source != OWN or not any(task.startswith("ils_") or task == "absent_grounding" for task in tasks):
            return {"pairs": [], "masks": []}
        thresholds = self.pairs_by_mix[mix]
        lines = [f"results/dataset/{thresholds}/{split}.jsonl" for split in SPLITS]
        return {"pairs": lines, "masks": self._masks_of(thresholds)}

    def _masks_of(self, thresholds: str) -> list[str]:
        names = [MIMIC_ILS] if thresholds == MIMIC_ILS else self.shards
        return [f"results/masks/{thresholds}/{name}.h5" for name in names]

    def segmentation_masks(self, mix: str) -> list[str]:
        """Return the shards of the cohort's masks, if it is a source, that [SEG] of a mix's samples stands for.

        They are the masks of ILS's pairs and of conversations.
        """
        sets = dict.fromkeys([self.thresholds, self.pairs_by_mix[mix]])
        return [path for thresholds in sets for path in self._masks_of(thresholds)] if OWN in self.sources else []

    def part_options(self, mix: str, source: str) -> dict:
        """Return the options of a source's samples in a mix."""
        rows = [asdict(row) for row in self.mixes[mix] if row.source == source]
        return {"source": source, "rows": rows, "smallest": Rules.min_component_px, "seed": self.seed}

    def mix_options(self, mix: str) -> dict:
        """Return the options of joining a mix."""
        return {"rows": list(map(asdict, self.mixes[mix])), "families": self.families, "seed": self.seed}


def make_radvlm_plan(settings: Settings, shards: Sequence[str]) -> RadvlmPlan:
    """Return the plan. ``shards``: of the cohort.

    Raises UserError for a source with missing files.
    """
    sources = settings.radvlm.sources.as_dict()
    external, used, filtered = sources["list"], sources["use"], settings.radvlm.filtered
    for name, source in external.items():
        _check_source_files(name, source)
    mixes = settings.radvlm.instructions.as_dict()["mixes"]
    for name in settings.release.mixes:
        if name not in mixes:
            mix_names = ", ".join(mixes)
            raise UserError(
                f"release.mixes names {name!r}, but the mixes of radvlm.instructions are {mix_names}: name one"
            )
    build, asks_filter = settings.thresholds.build[0], filtered.engine not in WITHOUT_MODEL
    formats = {name: settings.cohort.source if name == OWN else external[name]["format"] for name in used}
    own_keys = ("labels", "weak_hedges", "uncertain")
    return RadvlmPlan(
        seed=settings.seed,
        sources=used,
        declared=external,
        formats=formats,
        shards=list(shards),
        thresholds=build,
        own_options={name: sources[name] for name in own_keys} | {"smallest": Rules.min_component_px},
        filter_options=filtered.as_dict() | {"own": _shared_model(settings) if asks_filter else {}},
        reading_options={
            "uncertain": sources["uncertain"], "split": sources["split"],
            "max_characters": settings.reports.max_characters,
            "section_overrides": settings.reports.section_overrides,
            "seed": settings.seed, "shares": settings.cohort.split_shares(),
        },
        filter_jobs=ModelJobs.of_section(
            settings.radvlm.llm, {"source": used if len(used) > 1 else []}, is_asked=asks_filter
        ),
        mixes=_read_mixes(mixes, formats),
        pairs_by_mix={name: mix["thresholds"] or build for name, mix in mixes.items()},
        conversations=_make_conversations_plan(settings, formats),
        label_options=settings.radvlm.chexbert.as_dict() if sources["labels"] == CHEXBERT else {},
    )  # fmt: skip


def _shared_model(settings: Settings, **changes: object) -> dict:
    """Return the options of the language model of all stages, with ``changes``."""
    return model_options("radvlm.llm", settings.radvlm.llm.as_dict() | changes, settings.seed)


def _read_mixes(mixes: Mapping[str, Mapping], formats: Mapping[str, str]) -> dict[str, list[MixRow]]:
    """Return {mix: its rows}. Raises UserError for a task of a source that is not in use, or that cannot give it."""
    kind_by_source = {source: OWN if source == OWN else kind for source, kind in formats.items()}
    for name, mix in mixes.items():
        for task, sources in mix["tasks"].items():
            for source in sources:
                key = f"radvlm.instructions.mixes.{name}.tasks.{task}"
                if source not in kind_by_source:
                    raise UserError(
                        f"{key} names the source {source!r}, but those in use are {', '.join(kind_by_source)}: add it "
                        "there"
                    )
                if task.startswith("ils_") and source != OWN:
                    raise UserError(
                        f"{key} names the source {source!r}, but only {OWN!r} has an ILS dataset: leave it out"
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
    try:
        groups = re.compile(source["subject"]).groups
    except re.error as error:
        raise UserError(
            f"{key}.subject is {source['subject']!r}, no regular expression ({error}): correct it"
        ) from None
    if source["subject"] and not groups:
        raise UserError(f"{key}.subject is {source['subject']!r}, which has no group: put the subject in parentheses")


def _make_conversations_plan(settings: Settings, formats: Mapping[str, str]) -> ConversationsPlan:
    """Return the plan. ``formats``: {source in use: format}."""
    section, sources = settings.radvlm.conversations, settings.radvlm.sources.list
    kinds = {
        name: ("standard", "grounded") if name == OWN else FORMATS[kind].conversations for name, kind in formats.items()
    }
    kinds = {name: conversations for name, conversations in kinds.items() if conversations}
    hosts = {name: sources[name].pictures for name in kinds if name != OWN and FORMATS[formats[name]].on_mimic}
    options = {part: _conversation_options(settings, part) for part in PARTS}
    is_same_model = options["train"]["own"] == options["test"]["own"]
    values = {"source": list(kinds), "part": list(PARTS) if is_same_model else ["{part}"]}
    return ConversationsPlan(
        kinds=kinds,
        hosts={name: host for name, host in hosts.items() if host in formats},
        jobs=ModelJobs.of_section(settings.radvlm.llm, values, is_asked=section.engine != RULES),
        options=options,
        pairs=[f"results/dataset/{settings.thresholds.build[0]}/{split}.jsonl" for split in SPLITS],
    )


def _conversation_options(settings: Settings, part: str) -> dict:
    """Return the options of a part; ``own``: those of its language model, if it has one."""
    section = settings.radvlm.conversations
    model, revision = getattr(section.llm, f"{part}_model"), getattr(section.llm, f"{part}_revision")
    changes = {"model": model, "revision": revision} if model else {}
    asks_model = section.engine != RULES
    model_options = _shared_model(settings, temperature=CONVERSATION_TEMPERATURE, **changes) if asks_model else {}
    return section.as_dict(without=("llm",)) | {"seed": settings.seed, "own": model_options}


@dataclass(frozen=True)
class AnnotatorPlan:
    """How a model annotates reports."""

    files: Mapping[str, str]  # that it reads besides lines and answers
    placed: Sequence[str]  # files of its model's folder
    options: Mapping  # of its jobs
    environment: str  # ending of its name
    gpus: int  # of a language model that the job loads


@dataclass(frozen=True)
class EvaluationPlan:
    """Whose answers RadVLM's evaluation scores, by which judge, and their files."""

    section: Evaluation  # its settings
    seed: int
    runs: Sequence[str]  # of vlm.tuning that are scored
    tasks: Mapping[str, Sequence[str]]  # {run: tasks that it is tuned on, none for all}
    mixes: Sequence[str]  # that are tested or tuned on
    lines: str  # of the test set that are asked
    all_lines: str  # of the test set
    draw: Sequence[str]  # counts of the asked and of all lines, if not all are asked
    exchanged_lines: Sequence[str]  # lines of the same samples about other images, if they are asked
    exchanged_draw: Sequence[str]
    judge_model: Mapping  # options of the judge's language model, {} without one
    judge_gpus: int  # of a judge that the job loads
    annotators: Mapping[str, AnnotatorPlan]
    text_sources: Sequence[str]  # whose original reports are compared with
    gallery: Mapping  # options of the gallery

    @property
    def scored(self) -> list[str]:
        """Runs and other models that are scored."""
        return [*self.runs, *self.section.predictions]

    @property
    def train_lines(self) -> str:
        """The training lines of the mix that is tested: blind answers are made of them."""
        return str(Path(self.all_lines).with_name("train.jsonl"))

    def answers(self, name: str) -> str:
        """Return the answers of a run or of another model to the test lines."""
        is_other = name in self.section.predictions
        return f"{EVALUATION}/{name}/answers.jsonl" if is_other else f"results/vlm/{name}/answers/{TEST_SET}.jsonl"

    def exchanged_files(self, name: str) -> dict[str, Sequence[str]]:
        """Return {input: files} about other images: their lines, a run's answers to them, and how many are asked.

        Other models are not asked about them.
        """
        is_asked = self.exchanged_lines and name in self.runs
        answers = [f"results/vlm/{name}/answers/{EXCHANGED_SET}.jsonl"]
        files = {"lines": self.exchanged_lines, "answers": answers, "draw": self.exchanged_draw}
        return {f"exchanged_{kind}": paths if is_asked else [] for kind, paths in files.items()}

    def annotation_files(self, name: str) -> list[str]:
        """Return the files of annotations of a run's or model's reports; the user's is the last."""
        paths = [f"{EVALUATION}/{name}/annotations/{annotator}.jsonl" for annotator in self.annotators]
        return [*paths, *([self.section.annotations[name]] if name in self.section.annotations else [])]

    def score_options(self, name: str) -> dict:
        """Return the options of scoring a run or model."""
        tasks = self.tasks.get(name, ())
        if name in self.section.predictions and not self.section.beyond:
            tasks = load_adapters()[self.section.predictions[name].adapter].tasks
        keys = self.section.as_dict()
        return {key: keys[key] for key in SCORE_KEYS} | {"seed": self.seed, "tasks": list(tasks)}

    def model_options(self, name: str) -> dict:
        """Return the options of reading another model's outputs."""
        prediction = self.section.predictions[name]
        beyond = self.section.beyond
        return {"model": name, "adapter": prediction.adapter, "boxes": prediction.boxes, "beyond": beyond}

    @property
    def comparison(self) -> dict:
        """Options of the tables of all runs and models."""
        adapters = {name: prediction.adapter for name, prediction in self.section.predictions.items()}
        return {"runs": list(self.runs), "adapters": adapters}


def make_evaluation_plan(settings: Settings, vlm: VlmPlan) -> EvaluationPlan:
    """Return the plan. Raises UserError for an unknown run or a missing file.

    Without a test set in ``vlm``, no run is scored, and the lines are those of the first mix.
    """
    evaluation, sources, shared = settings.radvlm.evaluation, settings.radvlm.sources.use, settings.radvlm.llm
    mixes = settings.radvlm.instructions.mixes
    runs = evaluation.runs if TEST_SET in vlm.sets else []
    for name in runs:
        if name not in vlm.runs:
            run_names = ", ".join(vlm.runs) or "none"
            raise UserError(
                f"radvlm.evaluation.runs names {name!r}, but the runs of vlm.tuning are {run_names}: name one"
            )
    for name, prediction in evaluation.predictions.items():
        existing_file(f"radvlm.evaluation.predictions.{name}.path", prediction.path)
    for name, path in evaluation.annotations.items():
        existing_file(f"radvlm.evaluation.annotations.{name}", path)
    default = f"{INSTRUCTIONS}/{next(iter(mixes))}/test.jsonl"
    all_lines = vlm.all_lines.get(TEST_SET, default)
    evaluated = {Path(all_lines).parent.name, *(vlm.runs[name]["mix"] for name in runs)}
    asks_judge = evaluation.judge != FACTS
    judge_model = {"model": evaluation.llm.model, "revision": evaluation.llm.revision} if evaluation.llm.model else {}
    shows_texts = settings.cohort.source == "embedded" and list(sources) == [OWN]  # they are drawn
    return EvaluationPlan(
        section=evaluation,
        seed=settings.seed,
        runs=runs,
        tasks={name: vlm.runs[name]["options"].get("tasks", ()) for name in runs},
        mixes=[mix for mix in mixes if mix in evaluated],
        lines=vlm.sets.get(TEST_SET, default),
        all_lines=all_lines,
        exchanged_lines=[vlm.sets[EXCHANGED_SET]] if EXCHANGED_SET in vlm.sets else [],
        draw=vlm.draw_files(TEST_SET, "tsv"),
        exchanged_draw=vlm.draw_files(EXCHANGED_SET, "tsv"),
        judge_model=_shared_model(settings, **judge_model) if asks_judge else {},
        judge_gpus=shared.execution.gpus if asks_judge and shared.transport == "offline" else 0,
        annotators={name: _make_annotator_plan(name, settings) for name in evaluation.annotators},
        text_sources=[] if evaluation.reference == "filtered" else sources,
        gallery={
            "run": runs[0] if runs else "", "quality": JPEG_QUALITY, "seed": settings.seed,
            "withheld": "report_text" in settings.release.withhold and not shows_texts,
        },
    )  # fmt: skip


def _make_annotator_plan(name: str, settings: Settings) -> AnnotatorPlan:
    """Return how an annotator is run; its section is of the evaluation, or of RadVLM where other stages use it too."""
    plain = settings.radvlm.evaluation.as_dict()
    annotator_settings = plain[name] if name in plain else settings.radvlm.chexbert.as_dict()
    read_constant = partial(read_declaration, "cxr.radvlm.evaluation", f"annotate_{name}")
    key = f"radvlm.evaluation.{name}"
    files = {file: str(existing_file(f"{key}.{file}", annotator_settings[file])) for file in read_constant("FILES", ())}
    folder = annotator_settings["model"]
    placed = [str(existing_file(f"{key}.model", str(Path(folder) / file))) for file in read_constant("PLACED", ())]
    engine = f"{name} {folder.rstrip('/').rpartition('/')[2]} {annotator_settings.get('revision', '')}".strip()
    gpus, annotator_options = 0, annotator_settings
    if read_constant("LLM", False):
        shared = settings.radvlm.llm.as_dict()
        gpus = shared["execution"]["gpus"] if shared["transport"] == "offline" else 0
        llm = model_options(key, shared | annotator_settings | GREEN_LIMITS, settings.seed)
        annotator_options = {"llm": llm, "prompt_bytes": annotator_settings["prompt_bytes"]}
    return AnnotatorPlan(
        files=read_constant("INPUTS", {}) | files,
        placed=placed,
        options={"annotator": name, "own": annotator_options, "engine": engine, "reference": plain["reference"]},
        environment=read_constant("ENVIRONMENT", name),
        gpus=gpus,
    )


@dataclass(frozen=True)
class SegmentationPlan:
    """Masks for RadVLM's answers: by ROSALIA as a tool or by a run's head, and the rows that ILS's evaluation gains."""

    tool: str  # ROSALIA's run, "" without one
    runs: Sequence[str]  # scored runs for whose answers the tool draws masks
    heads: Sequence[str]  # scored runs that draw masks themselves
    image_runs: Sequence[str]  # runs for whose answers about one image the tool draws masks
    pairs: str  # ILS's pairs that a run is asked, "" if the cohort is no source
    thresholds: str  # their set

    @property
    def masked(self) -> dict[str, tuple[str, str]]:
        """{row of ILS's evaluation: (run, how its masks are made)}."""
        joins = [(run, HEAD) for run in self.heads] + [(run, TOOL) for run in self.runs]
        return {f"{run}_{join}": (run, join) for run, join in joins if self.pairs}

    @property
    def rows(self) -> dict[str, dict]:
        """{row of ILS's evaluation: its test set, titles and files}, beside ROSALIA's."""
        rows = {}
        for name, (run, join) in self.masked.items():
            title = f"RadVLM + ILS, {join} ({run})"
            stem = f"{EVALUATION}/{run}/" + (f"head/{ILS_SET}" if join == HEAD else f"segmenter/{ILS_SET}/{OWN}")
            files = {"predictions": f"{stem}.jsonl", "masks": f"{stem}.h5"}
            rows[name] = {"test": self.thresholds, "beside": title, "title": title} | files
        return rows

    def image_folder(self, run: str, image: str) -> str:
        """Return the folder of a run's answers about one image, with masks if the tool draws them."""
        return f"{EVALUATION}/{run}/asked/{image}" if run in self.image_runs else f"results/vlm/{run}/asked/{image}"


def make_segmentation_plan(
    settings: Settings, vlm: VlmPlan, ils_runs: Sequence[str]
) -> tuple[SegmentationPlan, VlmPlan]:
    """Return the plan, and that of vision-language models with ILS's pairs as one more set.

    ``ils_runs``: the runs of training. Raises UserError for an unknown segmenter, or a row with another model's name.
    """
    segmenter = settings.radvlm.evaluation.segmenter
    tool = segmenter.removeprefix(ROSALIA) if segmenter.startswith(ROSALIA) else ""
    if tool and tool not in ils_runs:
        raise UserError(
            f"radvlm.evaluation.segmenter is {segmenter!r}, but the runs of training are {', '.join(ils_runs)}: "
            "name one"
        )
    scored = settings.radvlm.evaluation.runs if TEST_SET in vlm.sets else []
    heads = [run for run in scored if run in vlm.with_head]
    uses_cohort = OWN in settings.radvlm.sources.use
    thresholds = settings.thresholds.build[0]
    plan = SegmentationPlan(
        tool,
        [run for run in scored if tool and run not in heads],
        heads,
        [name for name, run in vlm.runs.items() if tool and run["system"] == RADVLM and name not in vlm.with_head],
        f"results/dataset/{thresholds}/{settings.inference.split}.jsonl" if uses_cohort else "",
        thresholds,
    )
    for name in plan.rows:
        if name in ils_runs or name in settings.evaluation.predictions:
            raise UserError(
                f"{name!r} is the name of a model and of a run of RadVLM in the evaluation of ILS: rename the model"
            )
    asked_runs = [run for run, _ in plan.masked.values()]
    return plan, add_set(vlm, ILS_SET, f"{EVALUATION}/ils.jsonl", RADVLM, asked_runs) if asked_runs else vlm
