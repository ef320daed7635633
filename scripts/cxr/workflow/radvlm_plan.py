"""RadVLM's part of the plan: its sources, their files and options, and the options of its stages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.instructions.mix import MixRow, mix_rows, rows_to_options
from cxr.workflow.engine_files import declared
from cxr.workflow.params import model_options
from cxr.workflow.radvlm_conversing import Conversing, conversing
from cxr.workflow.settings import Settings
from cxr.workflow.settings.moved import MIMIC_ILS
from cxr.workflow.settings.radvlm.sources import FILES, ON_MIMIC, OWN

ROOT = "results/radvlm"
RULES = "rules"
WITHOUT_MODEL = (RULES, "none")
"""Engines of the stage filtered that need no language model; they share an environment."""
TABLES = (
    "*.csv", "*.csv.gz", "*.json", "annotations/*.csv", "annotations/*.csv.gz", "chexbert_labels/*.json",
    "silver_dataset/splits/*.csv",
)  # fmt: skip
"""Files of a source's folder that its reader may read, and whose change reads it again; pictures are not among them."""


@dataclass(frozen=True)
class Filtering:
    """How reports are filtered: the engine, its environment, and the GPUs of a model that is loaded in the job.

    sources: those of a job, all where it loads a model, else the wildcard's.
    """

    engine: str
    environment: str
    gpus: int
    sources: Sequence[str] = ("{source}",)

    @property
    def name(self) -> str:
        """Name of the job: all, or the source's."""
        return "all" if len(self.sources) > 1 else self.sources[0]

    @property
    def told(self) -> str:
        """The sources in words, for its message."""
        return "all" if len(self.sources) > 1 else "{wildcards.source}"


@dataclass(frozen=True)
class Labelling:
    """How a model labels reports: files: what it reads, none where no model does; module, environment; options."""

    files: Mapping[str, str]
    module: str
    environment: str
    options: Mapping


@dataclass(frozen=True)
class RadvlmPlan:
    """sources: names of the sources in use; declared: {external source: its keys}; formats: {source in use: format};
    shards: of the cohort; thresholds: the set whose masks own has; options: {what: its settings}; reading: what all
    external sources share; filtering: how the stage filtered is run; mixes: {mix: its rows}; pairs_of: {mix: threshold
    set of its ILS pairs, or the release}; conversing: how conversations are made; labelling: how a model labels the
    cohort's reports, if one does.
    """

    sources: Sequence[str]
    declared: Mapping[str, dict]
    formats: Mapping[str, str]
    shards: Sequence[str]
    thresholds: str
    options: Mapping[str, dict]
    reading: Mapping[str, object]
    filtering: Filtering
    mixes: Mapping[str, list[MixRow]]
    pairs_of: Mapping[str, str]
    conversing: Conversing
    labelling: Labelling

    def labels(self, shard: str) -> list[str]:
        """Return the labels of a shard's reports that a model tells; none where the rules or a table tell them."""
        return [f"{ROOT}/sources/own/{shard}.labels.jsonl"] if self.labelling.files else []

    def of_filtered(self, file: str) -> list[str]:
        """Return a file of the stage filtered for each source in use."""
        return [f"{ROOT}/filtered/{source}/{file}" for source in self.sources]

    def of_sources(self, file: str) -> list[str]:
        """Return a file of the stage sources for each source in use."""
        return [f"{ROOT}/sources/{source}/{file}" for source in self.sources]

    def named(self, *, mimic: bool) -> str:
        """Return a pattern of the names of the external sources that lie on pictures of MIMIC-CXR, or of all others."""
        names = [re.escape(name) for name, source in self.declared.items() if (source["format"] in ON_MIMIC) == mimic]
        return "|".join(names) or "(?!)"

    def tables(self, source: str) -> list[str]:
        """Return the files that a source is read from, pictures and reports excepted."""
        path = Path(self.declared[source]["path"])
        if path.is_file():
            return [str(path)]
        return sorted({str(file) for pattern in TABLES for file in path.glob(pattern)})

    def mimic_of(self, source: str) -> str:
        """Return the table of images of the source of format mimic that a source lies on."""
        return f"{ROOT}/sources/{self.declared[source]['pictures']}/images.parquet"

    def of_source(self, source: str) -> dict:
        """Return the options of reading an external source."""
        return dict(self.reading) | {"name": source, "source": self.declared[source]}

    def frames(self) -> list[str]:
        """Return the frames of the external sources in use, those of MIMIC-CXR once."""
        used = {self.declared[name]["pictures"] if self.formats[name] in ON_MIMIC else name for name in self.external}
        return [f"{ROOT}/sources/{name}/frames/{shard}.h5" for name in sorted(used) for shard in self.shards]

    def shown_in(self, source: str) -> list[str]:
        """Return the shards of frames that show the images of a source."""
        name = self.declared[source]["pictures"] if self.formats[source] in ON_MIMIC and source != OWN else source
        folder = "results/frames" if name == OWN else f"{ROOT}/sources/{name}/frames"
        return [f"{folder}/{shard}.h5" for shard in self.shards]

    def pictures(self) -> list[str]:
        """Return the shards of frames that show the images of all sources in use."""
        return sorted({path for source in self.sources for path in self.shown_in(source)})

    def _asked(self, mix: str, source: str) -> set[str]:
        return {row.task for row in self.mixes[mix] if row.source == source}

    def conversed(self, mix: str, source: str) -> list[str]:
        """Return the conversations of a source that a mix asks; none where it asks none."""
        asks_conversation = any(task.startswith("conversation") for task in self._asked(mix, source))
        has_conversations = asks_conversation and source in self.conversing.kinds
        return [f"{ROOT}/conversations/{source}/conversations.jsonl"] if has_conversations else []

    def outcomes(self, mix: str) -> list[str]:
        """Return the tables of what became of the conversations that a mix asks."""
        paths = [path for source in self.sources for path in self.conversed(mix, source)]
        return [str(Path(path).with_name("outcomes.tsv")) for path in paths]

    def ils(self, mix: str, source: str, kind: str) -> list[str]:
        """Return the files of the ILS dataset that a mix takes from the cohort: its pairs, or its masks."""
        tasks = {task for task in self._asked(mix, source) if task.startswith("ils_") or task == "absent_grounding"}
        if source != OWN or not tasks:
            return []
        thresholds = self.pairs_of[mix]
        if kind == "pairs":
            return [f"results/dataset/{thresholds}/{split}.jsonl" for split in SPLITS]
        return self._masks_of(thresholds)

    def _masks_of(self, thresholds: str) -> list[str]:
        names = [MIMIC_ILS] if thresholds == MIMIC_ILS else self.shards
        return [f"results/masks/{thresholds}/{name}.h5" for name in names]

    def masks(self, mix: str) -> list[str]:
        """Return the shards of the masks that the [SEG] of a mix's samples stand for, in pairs and in conversations:
        the cohort's, if it is a source.
        """
        sets = dict.fromkeys([self.thresholds, self.pairs_of[mix]])
        return [path for thresholds in sets for path in self._masks_of(thresholds)] if OWN in self.sources else []

    def parts(self, mix: str, ending: str) -> list[str]:
        """Return the files of the sources that a mix has tasks of, in the order of the sources."""
        used = [source for source in self.sources if self._asked(mix, source)]
        return [f"{ROOT}/instructions/{mix}/parts/{source}.{ending}" for source in used]

    def of_part(self, mix: str, source: str) -> dict:
        """Return the options of a source's samples in a mix."""
        rows = [row for row in self.mixes[mix] if row.source == source]
        options = {
            name: self.options["instructions"][name] for name in ("regions", "label_case", "absent_share", "seed")
        }
        return options | {"source": source, "rows": rows_to_options(rows), "smallest": self.options["own"]["smallest"]}

    def of_mix(self, mix: str) -> dict:
        """Return the options of joining a mix."""
        options = {name: self.options["instructions"][name] for name in ("order", "seed")}
        return options | {"rows": rows_to_options(self.mixes[mix]), "formats": dict(self.formats)}

    @property
    def folders(self) -> dict[str, str]:
        """{source: folder of the shards that show its images}."""
        return {source: str(Path(self.shown_in(source)[0]).parent) for source in self.sources}

    @property
    def llava(self) -> dict:
        """Options of a mix's export for LLaVA's trainers."""
        return self.options["instructions"]["llava"] | {"folders": self.folders}

    def of_release(self, mix: str, package_options: Mapping) -> dict:
        """Return the options of a mix's package; ``package_options``: those of all packages."""
        return dict(package_options) | {"mix": mix, "terms": dict(self.formats), "folders": self.folders}

    @property
    def external(self) -> list[str]:
        """Names of the external sources in use."""
        return [name for name in self.sources if name != OWN]


def radvlm_plan(settings: Settings, shards: Sequence[str], cohort: Mapping) -> RadvlmPlan:
    """Return the plan. ``shards``: of the cohort; ``cohort``: its stage's options.

    Raises UserError for a source whose files are not there.
    """
    plain = settings.radvlm.as_dict()
    sources = plain.pop("sources")
    external = sources["list"]
    for name, source in external.items():
        _check(name, source)
    own_options = {name: sources[name] for name in ("labels", "weak_hedges", "uncertain", "regions", "min_box")}
    shared = {name: sources[name] for name in ("uncertain", "split", "min_box", "fusion")}
    reports = settings.reports
    shared |= {"max_characters": reports.max_characters, "section_overrides": reports.section_overrides}
    shared |= {"seed": settings.seed, "shares": cohort["split_shares"]}
    for name in settings.release.mixes:
        if name not in settings.radvlm.instructions.mixes:
            mix_names = ", ".join(settings.radvlm.instructions.mixes)
            raise UserError(
                f"release.mixes names {name!r}, but the mixes of radvlm.instructions are {mix_names}: name one"
            )
    build = settings.thresholds.build[0]
    formats = {name: settings.cohort.source if name == OWN else external[name]["format"] for name in sources["use"]}
    return RadvlmPlan(
        sources["use"],
        external,
        formats,
        list(shards),
        build,
        plain
        | {
            "own": own_options | {"smallest": settings.masks.min_component_px},
            "filtered": _filtered(plain["filtered"], settings.seed),
            "instructions": plain["instructions"] | {"seed": settings.seed},
        },
        shared,
        _filtering(settings),
        _mixes(plain["instructions"]["mixes"], formats),
        {name: mix.thresholds or build for name, mix in settings.radvlm.instructions.mixes.items()},
        conversing(settings, formats, plain["conversations"]),
        _labelling(sources["labels"], plain),
    )


def _labelling(engine: str, plain: Mapping) -> Labelling:
    """Return how the engine labels reports; another than a model reads no files."""
    if engine not in plain:
        return Labelling({}, "radvlm.sources.label_reports", "radvlm_sources", {})
    module = f"labels_{engine}"
    files = declared("cxr.radvlm.sources", module, "INPUTS", {})
    options = {"engine": engine, "own": plain[engine]}
    return Labelling(files, f"radvlm.sources.{module}", f"radvlm_sources-{engine}", options)


def _mixes(mixes: Mapping[str, Mapping], formats: Mapping[str, str]) -> dict[str, list[MixRow]]:
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


def _filtered(section: Mapping, seed: int) -> dict:
    """Return the options of the stage filtered; ``own``: those of its language model, if it has one."""
    options, llm = dict(section), section["llm"]
    del options["llm"]
    plain = options["engine"] in WITHOUT_MODEL
    return options | {"own": {} if plain else model_options("radvlm.filtered.llm", llm, seed)}


def _filtering(settings: Settings) -> Filtering:
    section = settings.radvlm.filtered
    if section.engine in WITHOUT_MODEL:
        return Filtering(section.engine, RULES, 0)
    if section.llm.transport != "offline":
        return Filtering(section.engine, "vllm", 0)
    used = list(settings.radvlm.sources.use)
    return Filtering(section.engine, "vllm", section.llm.execution.gpus, used if len(used) > 1 else ["{source}"])


def _check(name: str, source: Mapping[str, str]) -> None:
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
