"""RadVLM's part of the plan: its sources, their files and options, and the options of its stages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.workflow.params import model_options
from cxr.workflow.settings import Settings
from cxr.workflow.settings.radvlm.sources import FILES, ON_MIMIC, OWN

ROOT = "results/radvlm"
RULES = "rules"
"""The engine that needs no language model."""
TABLES = (
    "*.csv", "*.csv.gz", "*.json", "annotations/*.csv", "annotations/*.csv.gz", "chexbert_labels/*.json",
    "silver_dataset/splits/*.csv",
)  # fmt: skip
"""Files of a source's folder that its reader may read, and whose change reads it again; pictures are not among them."""


@dataclass(frozen=True)
class Filtering:
    """How reports are filtered: the engine, its environment, and the GPUs of a model that is loaded in the job."""

    engine: str
    environment: str
    gpus: int


@dataclass(frozen=True)
class RadvlmPlan:
    """sources: names of the sources in use; declared: {external source: its keys}; formats: {source in use: format};
    shards: of the cohort; thresholds: the set whose masks own has; options: {what: its settings}; reading: what all
    external sources share; filtering: how the stage filtered is run.
    """

    sources: Sequence[str]
    declared: Mapping[str, dict]
    formats: Mapping[str, str]
    shards: Sequence[str]
    thresholds: str
    options: Mapping[str, dict]
    reading: Mapping[str, object]
    filtering: Filtering

    def of_filtered(self, file: str) -> list[str]:
        """Return a file of the stage filtered for each source in use."""
        return [f"{ROOT}/filtered/{source}/{file}" for source in self.sources]

    def of_sources(self, file: str) -> list[str]:
        """Return a file of the stage sources for each source in use."""
        return [f"{ROOT}/sources/{source}/{file}" for source in self.sources]

    def named(self, *, mimic: bool) -> str:
        """Return a pattern of the names of the external sources that lie on pictures of MIMIC-CXR, or of all others."""
        names = [re.escape(name) for name, one in self.declared.items() if (one["format"] in ON_MIMIC) == mimic]
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

    @property
    def external(self) -> list[str]:
        """Names of the external sources in use."""
        return [name for name in self.sources if name != OWN]


def radvlm_plan(settings: Settings, shards: Sequence[str], cohort: Mapping) -> RadvlmPlan:
    """Return the plan. ``shards``: of the cohort; ``cohort``: its stage's options.

    Raises UserError for a source whose files are not there.
    """
    plain = settings.radvlm.model_dump(mode="json")
    sources = plain.pop("sources")
    declared = sources["list"]
    for name, one in declared.items():
        _check(name, one)
    own = {name: sources[name] for name in ("labels", "weak_hedges", "uncertain", "regions", "min_box")}
    shared = {name: sources[name] for name in ("uncertain", "split", "min_box", "fusion")}
    reports = settings.reports
    shared |= {"max_characters": reports.max_characters, "section_overrides": reports.section_overrides}
    shared |= {"seed": settings.seed, "shares": cohort["split_shares"]}
    formats = {name: settings.cohort.source if name == OWN else declared[name]["format"] for name in sources["use"]}
    return RadvlmPlan(
        sources["use"],
        declared,
        formats,
        list(shards),
        settings.thresholds.build[0],
        plain
        | {
            "own": own | {"smallest": settings.masks.min_component_px},
            "filtered": _filtered(plain["filtered"], settings.seed),
        },
        shared,
        _filtering(settings),
    )


def _filtered(section: Mapping, seed: int) -> dict:
    """Return the options of the stage filtered; ``own``: those of its language model, if it has one."""
    options, llm = dict(section), section["llm"]
    del options["llm"]
    return options | {"own": {} if options["engine"] == RULES else model_options("radvlm.filtered.llm", llm, seed)}


def _filtering(settings: Settings) -> Filtering:
    section = settings.radvlm.filtered
    if section.engine == RULES:
        return Filtering(section.engine, RULES, 0)
    return Filtering(section.engine, "vllm", section.llm.execution.gpus if section.llm.transport == "offline" else 0)


def _check(name: str, one: Mapping[str, str]) -> None:
    key = f"radvlm.sources.list.{name}"
    if one["format"] in FILES:
        existing_file(f"{key}.path", one["path"])
    elif not (one["format"] == "ms_cxr" and Path(one["path"]).is_file()):
        existing_folder(f"{key}.path", one["path"])
    if one["pictures"] and one["format"] not in ON_MIMIC:
        existing_folder(f"{key}.pictures", one["pictures"])
    try:
        groups = re.compile(one["subject"]).groups
    except re.error as error:
        raise UserError(f"{key}.subject is {one['subject']!r}, no regular expression ({error}): correct it") from None
    if one["subject"] and not groups:
        raise UserError(f"{key}.subject is {one['subject']!r}, which has no group: put the subject in parentheses")
