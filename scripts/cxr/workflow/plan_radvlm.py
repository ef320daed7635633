"""RadVLM's part of the plan: sources, filtered text, conversations, mixes, evaluation, and masks for its answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import SPLITS
from cxr.ils.masks.rules import Rules
from cxr.radvlm.evaluation.other_models import load_adapters
from cxr.radvlm.instructions.mix import MixRow, mix_rows, rows_to_options
from cxr.radvlm.sources.settings import FILES, ON_MIMIC, OWN
from cxr.workflow.engine_files import read_declaration
from cxr.workflow.models import RULES, ModelJobs, model_options
from cxr.workflow.plan_vlm import VlmPlan, add_set
from cxr.workflow.settings import Settings
from cxr.workflow.settings.changed_keys import MIMIC_ILS

ROOT = "results/radvlm"
INSTRUCTIONS = "results/radvlm/instructions"
EVALUATION = "results/radvlm/evaluation"
WITHOUT_MODEL = (RULES, "none")
"""Engines of the stage filtered that need no language model; they share an environment."""
SOURCE_TABLES = (
    "*.csv", "*.csv.gz", "*.json", "annotations/*.csv", "annotations/*.csv.gz", "chexbert_labels/*.json",
    "silver_dataset/splits/*.csv",
)  # fmt: skip
"""Files of a source's folder that its reader may read, and whose change reads it again; images are not among them."""


CONVERSATION_KINDS = {"mimic": ["standard"], "ms_cxr": ["grounded"], "padchest_gr": ["grounded"]}
"""{format of a source: kinds of conversations about it}; own gives both."""
PARTS = ("train", "test")
"""Parts of a source whose conversations are made apart, since their models may differ; validate goes with train."""
TEST_SET, EXCHANGED_SET, ILS_SET = "radvlm_test", "radvlm_exchanged", "radvlm_ils"
"""Sets of vlm.answers: test lines of a mix, the same about other images, and all pairs that ILS's evaluation scores."""
FACTS = "facts"
SCORE_KEYS = (
    "label_match", "report_metrics", "reference", "failed", "replicates",
)  # fmt: skip
"""Keys that the scores depend on."""


ROSALIA, RADVLM = "rosalia:", "radvlm"
TOOL, HEAD = "tool", "head"


@dataclass(frozen=True)
class LabelPlan:
    """How the cohort's reports are labelled for RadVLM."""

    files: Mapping[str, str]  # that a model reads, {} if rules or a table label
    module: str
    environment: str
    options: Mapping


@dataclass(frozen=True)
class ConversationsPlan:
    """How RadVLM's conversations are made."""

    kinds: Mapping[str, Sequence[str]]  # {source: kinds of its conversations}
    hosts: Mapping[str, str]  # {source: the source whose images it describes}
    engine: str
    jobs: ModelJobs
    options: Mapping[str, dict]  # {part: its options}
    pairs: Sequence[str]  # lines of ILS's dataset, whose masks are requested in turns

    @property
    def environment(self) -> str:
        """Ending of the name of the environment in which a part is made."""
        return RULES if self.engine == RULES else "vllm"

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
            "pairs": list(self.pairs) if source == OWN else [],
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

    sources: Sequence[str]  # in use
    declared: Mapping[str, dict]  # {external source: its settings}
    formats: Mapping[str, str]  # {source in use: its format}
    shards: Sequence[str]  # of the cohort
    thresholds: str  # the threshold set whose masks the source own has
    options: Mapping[str, dict]  # {stage: its settings}
    reading_options: Mapping[str, object]  # that all external sources share
    filter_engine: str
    filter_jobs: ModelJobs
    mixes: Mapping[str, list[MixRow]]  # {mix: its rows}
    pairs_by_mix: Mapping[str, str]  # {mix: threshold set of its ILS pairs, or the release}
    conversations: ConversationsPlan
    labels: LabelPlan

    @property
    def external(self) -> list[str]:
        """Names of the external sources in use."""
        return [name for name in self.sources if name != OWN]

    @property
    def folders(self) -> dict[str, str]:
        """{source: folder of the shards that show its images}."""
        return {source: str(Path(self.frames_of(source)[0]).parent) for source in self.sources}

    def source_pattern(self, *, mimic: bool) -> str:
        """Return a pattern of the external sources about images of MIMIC-CXR, or of all others."""
        names = [re.escape(name) for name, source in self.declared.items() if (source["format"] in ON_MIMIC) == mimic]
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
        used = {self.declared[name]["pictures"] if self.formats[name] in ON_MIMIC else name for name in self.external}
        return [f"{ROOT}/sources/{name}/frames/{shard}.h5" for name in sorted(used) for shard in self.shards]

    def frames_of(self, source: str) -> list[str]:
        """Return the shards of frames that show the images of a source."""
        name = self.declared[source]["pictures"] if self.formats[source] in ON_MIMIC and source != OWN else source
        folder = "results/frames" if name == OWN else f"{ROOT}/sources/{name}/frames"
        return [f"{folder}/{shard}.h5" for shard in self.shards]

    def all_frames(self) -> list[str]:
        """Return the shards of frames that show the images of all sources in use."""
        return sorted({path for source in self.sources for path in self.frames_of(source)})

    def _tasks(self, mix: str, source: str) -> set[str]:
        return {row.task for row in self.mixes[mix] if row.source == source}

    def conversation_sources(self, mix: str) -> list[str]:
        """Return the sources about whose images a mix has conversations."""
        return [
            source
            for source in self.sources
            if source in self.conversations.kinds
            and any(task.startswith("conversation") for task in self._tasks(mix, source))
        ]

    def sources_of(self, mix: str) -> list[str]:
        """Return the sources that a mix has tasks of."""
        return [source for source in self.sources if self._tasks(mix, source)]

    def ils_pairs(self, mix: str, source: str) -> list[str]:
        """Return the lines of ILS's dataset that a mix takes from the cohort."""
        thresholds = self.pairs_by_mix[mix]
        return [f"results/dataset/{thresholds}/{split}.jsonl" for split in SPLITS] if self._has_ils(mix, source) else []

    def ils_masks(self, mix: str, source: str) -> list[str]:
        """Return the masks of these pairs."""
        return self._masks_of(self.pairs_by_mix[mix]) if self._has_ils(mix, source) else []

    def _has_ils(self, mix: str, source: str) -> bool:
        tasks = self._tasks(mix, source)
        return source == OWN and any(task.startswith("ils_") or task == "absent_grounding" for task in tasks)

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
        rows = [row for row in self.mixes[mix] if row.source == source]
        smallest, seed = self.options["own"]["smallest"], self.options["instructions"]["seed"]
        return {"source": source, "rows": rows_to_options(rows), "smallest": smallest, "seed": seed}

    def mix_options(self, mix: str) -> dict:
        """Return the options of joining a mix."""
        rows, seed = rows_to_options(self.mixes[mix]), self.options["instructions"]["seed"]
        return {"rows": rows, "formats": dict(self.formats), "seed": seed}


def make_radvlm_plan(settings: Settings, shards: Sequence[str]) -> RadvlmPlan:
    """Return the plan. ``shards``: of the cohort.

    Raises UserError for a source with missing files.
    """
    plain = settings.radvlm.as_dict()
    sources, filtered = plain.pop("sources"), settings.radvlm.filtered
    external = sources["list"]
    for name, source in external.items():
        _check_source_files(name, source)
    own_options = {name: sources[name] for name in ("labels", "weak_hedges", "uncertain", "min_box")}
    shared = {name: sources[name] for name in ("uncertain", "split", "min_box")}
    reports = settings.reports
    shared |= {"max_characters": reports.max_characters, "section_overrides": reports.section_overrides}
    shared |= {"seed": settings.seed, "shares": settings.cohort.split_shares()}
    for name in settings.release.mixes:
        if name not in settings.radvlm.instructions.mixes:
            mix_names = ", ".join(settings.radvlm.instructions.mixes)
            raise UserError(
                f"release.mixes names {name!r}, but the mixes of radvlm.instructions are {mix_names}: name one"
            )
    build, used = settings.thresholds.build[0], sources["use"]
    formats = {name: settings.cohort.source if name == OWN else external[name]["format"] for name in used}
    return RadvlmPlan(
        sources=used,
        declared=external,
        formats=formats,
        shards=list(shards),
        thresholds=build,
        options=plain
        | {
            "own": own_options | {"smallest": Rules.min_component_px},
            "filtered": _filter_options(plain["filtered"], settings.seed),
            "instructions": plain["instructions"] | {"seed": settings.seed},
        },
        reading_options=shared,
        filter_engine=filtered.engine,
        filter_jobs=ModelJobs.of_section(
            filtered.llm,
            {"source": used if len(used) > 1 else []},
            is_asked=filtered.engine not in WITHOUT_MODEL,
        ),
        mixes=_read_mixes(plain["instructions"]["mixes"], formats),
        pairs_by_mix={name: mix.thresholds or build for name, mix in settings.radvlm.instructions.mixes.items()},
        conversations=_make_conversations_plan(settings, formats, plain["conversations"]),
        labels=_make_label_plan(sources["labels"], plain),
    )


def _make_label_plan(engine: str, plain: Mapping) -> LabelPlan:
    if engine not in plain:  # not a model
        return LabelPlan({}, "radvlm.sources.label_reports", "radvlm_sources", {})
    module = f"labels_{engine}"
    files = read_declaration("cxr.radvlm.sources", module, "INPUTS", {})
    options = {"engine": engine, "own": plain[engine]}
    return LabelPlan(files, f"radvlm.sources.{module}", f"radvlm_sources-{engine}", options)


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


def _filter_options(section: Mapping, seed: int) -> dict:
    """Return the options of the stage filtered; ``own``: those of its language model, if it has one."""
    options, llm = dict(section), section["llm"]
    del options["llm"]
    model_keys = {} if options["engine"] in WITHOUT_MODEL else model_options("radvlm.filtered.llm", llm, seed)
    return options | {"own": model_keys}


def _check_source_files(name: str, source: Mapping[str, str]) -> None:
    key = f"radvlm.sources.list.{name}"
    if source["format"] in FILES:
        existing_file(f"{key}.path", source["path"])
    elif not (source["format"] == "ms_cxr" and Path(source["path"]).is_file()):
        existing_folder(f"{key}.path", source["path"])
    if source["pictures"] and source["format"] not in ON_MIMIC:
        existing_folder(f"{key}.pictures", source["pictures"])
    try:
        groups = re.compile(source["subject"]).groups
    except re.error as error:
        raise UserError(
            f"{key}.subject is {source['subject']!r}, no regular expression ({error}): correct it"
        ) from None
    if source["subject"] and not groups:
        raise UserError(f"{key}.subject is {source['subject']!r}, which has no group: put the subject in parentheses")


def _make_conversations_plan(settings: Settings, formats: Mapping[str, str], plain: Mapping) -> ConversationsPlan:
    """Return the plan. ``formats``: {source in use: format}; ``plain``: the section's keys."""
    section, sources = settings.radvlm.conversations, settings.radvlm.sources.list
    kinds = {
        name: ["standard", "grounded"] if name == OWN else CONVERSATION_KINDS[kind]
        for name, kind in formats.items()
        if name == OWN or kind in CONVERSATION_KINDS
    }
    hosts = {name: sources[name].pictures for name in kinds if name != OWN and formats[name] in ON_MIMIC}
    pairs = [f"results/dataset/{settings.thresholds.build[0]}/{split}.jsonl" for split in SPLITS]
    options = {part: _conversation_options(settings, plain, part) for part in PARTS}
    is_same_model = options["train"]["own"] == options["test"]["own"]
    values = {"source": list(kinds), "part": list(PARTS) if is_same_model else ["{part}"]}
    return ConversationsPlan(
        kinds=kinds,
        hosts={name: host for name, host in hosts.items() if host in formats},
        engine=section.engine,
        jobs=ModelJobs.of_section(section.llm, values, is_asked=section.engine != RULES),
        options=options,
        pairs=pairs,
    )


def _conversation_options(settings: Settings, plain: Mapping, part: str) -> dict:
    """Return the options of a part; ``own``: those of its language model, if it has one."""
    llm, filtered = plain["llm"], settings.radvlm.filtered.llm
    model, revision = llm[f"{part}_model"], llm[f"{part}_revision"]
    if not model:
        model, revision = filtered.model, filtered.revision
    llm = llm | {"model": model, "revision": revision}
    model_keys = {} if plain["engine"] == RULES else model_options("radvlm.conversations.llm", llm, settings.seed)
    return {name: value for name, value in plain.items() if name != "llm"} | {"seed": settings.seed, "own": model_keys}


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

    runs: Sequence[str]  # of vlm.tuning that are scored
    tuned: Sequence[str]  # those of them that are tuned here
    mixes: Sequence[str]  # that are tested or tuned on
    tasks: Mapping[str, Sequence[str]]  # {run: tasks that it is tuned on, none for all}
    models: Mapping[str, dict]  # {other model: its settings}
    lines: str  # of the test set that are asked
    all_lines: str  # of the test set
    draw: Sequence[str]  # counts of the asked and of all lines, if not all are asked
    exchanged_lines: Sequence[str]  # lines of the same samples about other images, if they are asked
    exchanged_draw: Sequence[str]
    scoring: Mapping  # options of the scores
    judging: Mapping  # options of the judge
    judge: str
    judge_gpus: int  # of a judge that the job loads
    annotations: Mapping[str, str]  # {run or model: the user's file of annotations}
    annotators: Mapping[str, AnnotatorPlan]
    texts: Sequence[str]  # reports of the sources, if they are compared with
    beyond: bool
    dpi: int
    gallery: Mapping  # options of the gallery

    @property
    def scored(self) -> list[str]:
        """Runs and other models that are scored."""
        return [*self.runs, *self.models]

    @property
    def train_lines(self) -> str:
        """The training lines of the mix that is tested: blind answers are made of them."""
        return str(Path(self.all_lines).with_name("train.jsonl"))

    def answers(self, name: str) -> str:
        """Return the answers of a run or of another model to the test lines."""
        return (
            f"{EVALUATION}/{name}/answers.jsonl"
            if name in self.models
            else f"results/vlm/{name}/answers/{TEST_SET}.jsonl"
        )

    def exchanged_files(self, name: str) -> dict[str, list[str]]:
        """Return {input: files} about other images: their lines, a run's answers to them, and how many are asked.

        Other models are not asked about them.
        """
        is_asked = self.exchanged_lines and name not in self.models
        return {
            "exchanged_lines": list(self.exchanged_lines) if is_asked else [],
            "exchanged_answers": [f"results/vlm/{name}/answers/{EXCHANGED_SET}.jsonl"] if is_asked else [],
            "exchanged_draw": list(self.exchanged_draw) if is_asked else [],
        }

    def annotation_files(self, name: str) -> list[str]:
        """Return the files of annotations of a run's or model's reports; the user's is the last."""
        paths = [f"{EVALUATION}/{name}/annotations/{annotator}.jsonl" for annotator in self.annotators]
        return [*paths, *([self.annotations[name]] if name in self.annotations else [])]

    def score_options(self, name: str) -> dict:
        """Return the options of scoring a run or model."""
        if name not in self.models:
            tasks = self.tasks[name]
        else:
            tasks = () if self.beyond else load_adapters()[self.models[name]["adapter"]].tasks
        return dict(self.scoring) | {"tasks": list(tasks)}

    def model_options(self, name: str) -> dict:
        """Return the options of reading another model's outputs."""
        keys = self.models[name]
        return {"model": name, "adapter": keys["adapter"], "boxes": keys["boxes"], "beyond": self.beyond}

    @property
    def comparison(self) -> dict:
        """Options of the tables of all runs and models."""
        return {
            "runs": list(self.runs), "models": list(self.models),
            "adapters": {name: keys["adapter"] for name, keys in self.models.items()},
        }  # fmt: skip


def make_evaluation_plan(settings: Settings, vlm: VlmPlan) -> EvaluationPlan:
    """Return the plan. Raises UserError for an unknown run or a missing file.

    Without a test set in ``vlm``, no run is scored, and the lines are those of the first mix.
    """
    evaluation, sources = settings.radvlm.evaluation, settings.radvlm.sources.use
    plain = evaluation.as_dict()
    runs = evaluation.runs if TEST_SET in vlm.sets else []
    default = f"{INSTRUCTIONS}/{next(iter(settings.radvlm.instructions.mixes))}/test.jsonl"
    all_lines = vlm.all_lines.get(TEST_SET, default)
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
    judging = {"judge": evaluation.judge, "own": {}}
    if evaluation.judge != FACTS:
        judging["own"] = model_options("radvlm.evaluation.llm", plain["llm"], settings.seed)
    loads_judge = evaluation.judge != FACTS and evaluation.llm.transport == "offline"
    return EvaluationPlan(
        runs=runs,
        tuned=[name for name in runs if name in vlm.trained],
        mixes=_evaluated_mixes(settings.radvlm.instructions.mixes, all_lines, [vlm.runs[name]["mix"] for name in runs]),
        tasks={name: vlm.runs[name]["options"].get("tasks", ()) for name in runs},
        models=plain["predictions"],
        lines=vlm.sets.get(TEST_SET, default),
        all_lines=all_lines,
        exchanged_lines=[vlm.sets[EXCHANGED_SET]] if EXCHANGED_SET in vlm.sets else [],
        draw=vlm.draw_files(TEST_SET, "tsv"),
        exchanged_draw=vlm.draw_files(EXCHANGED_SET, "tsv"),
        scoring={name: plain[name] for name in SCORE_KEYS} | {"seed": settings.seed},
        judging=judging,
        judge=evaluation.judge,
        judge_gpus=evaluation.llm.execution.gpus if loads_judge else 0,
        annotations=evaluation.annotations,
        annotators={name: _make_annotator_plan(name, plain, settings) for name in evaluation.annotators},
        texts=[]
        if evaluation.reference == "filtered"
        else [f"results/radvlm/sources/{source}/texts.jsonl" for source in sources],
        beyond=evaluation.beyond,
        dpi=settings.figures.dpi,
        gallery={
            "run": runs[0] if runs else "",
            "quality": settings.figures.quality,
            "seed": settings.seed,
            "withheld": "report_text" in settings.release.withhold
            and not (settings.cohort.source == "embedded" and list(sources) == [OWN]),  # whose texts are drawn
        },
    )


def _evaluated_mixes(mixes: Sequence[str], lines: str, tuned: Sequence[str]) -> list[str]:
    """Return the mixes that the test ``lines`` are of or that runs are ``tuned`` on, in the order of the settings."""
    return [mix for mix in mixes if mix in tuned or Path(lines).parent == Path(INSTRUCTIONS, mix)]


def _make_annotator_plan(name: str, plain: Mapping, settings: Settings) -> AnnotatorPlan:
    """Return how an annotator is run; its section is of the evaluation, or of RadVLM where other stages use it too."""
    annotator_settings = plain[name] if name in plain else settings.radvlm.chexbert.as_dict()
    read_constant = partial(read_declaration, "cxr.radvlm.evaluation", f"annotate_{name}")
    key = f"radvlm.evaluation.{name}"
    places = {
        file_key: str(existing_file(f"{key}.{file_key}", annotator_settings[file_key]))
        for file_key in read_constant("FILES", ())
    }
    placed = [
        str(existing_file(f"{key}.model", str(Path(annotator_settings["model"]) / file_name)))
        for file_name in read_constant("PLACED", ())
    ]
    model_name = annotator_settings["model"].rstrip("/").rpartition("/")[2]
    engine = f"{name} {model_name} {annotator_settings.get('revision', '')}".strip()
    gpus, annotator_options = 0, annotator_settings
    if read_constant("LLM", False):
        gpus = plain["llm"]["execution"]["gpus"] if annotator_settings["transport"] == "offline" else 0
        llm = model_options(key, annotator_settings, settings.seed)
        annotator_options = {"llm": llm, "prompt_bytes": annotator_settings["prompt_bytes"]}
    options = {"annotator": name, "own": annotator_options, "engine": engine, "reference": plain["reference"]}
    return AnnotatorPlan(
        read_constant("INPUTS", {}) | places, placed, options, read_constant("ENVIRONMENT", name), gpus
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
            raise UserError(f"{name!r} is a row of RadVLM's in the evaluation of ILS: rename the model of that name")
    asked_runs = [run for run, _ in plan.masked.values()]
    return plan, add_set(vlm, ILS_SET, f"{EVALUATION}/ils.jsonl", RADVLM, asked_runs) if asked_runs else vlm
