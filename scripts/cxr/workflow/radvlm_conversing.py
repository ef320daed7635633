"""RadVLM's conversations in the plan: which source gives which kinds, from which files, by which engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cxr.base.vocabulary import SPLITS
from cxr.workflow.params import model_options
from cxr.workflow.settings import Settings
from cxr.workflow.settings.radvlm.sources import ON_MIMIC, OWN

SOURCES, FILTERED, CONVERSATIONS = (f"results/radvlm/{stage}" for stage in ("sources", "filtered", "conversations"))
KINDS = {"mimic": ["standard"], "ms_cxr": ["grounded"], "padchest_gr": ["grounded"]}
"""Kinds of conversations by the format of a source; own gives both."""
PARTS = ("train", "test")
"""Parts of a source that are made apart, since their models may differ; validate goes with train."""
RULES = "rules"
KEY = "radvlm.conversations.llm"


@dataclass(frozen=True)
class Conversing:
    """kinds: {source: its kinds}; hosts: {source: the one whose pictures it lies on}; engine, environment: how a part
    is made; loading: whether a job loads a model, with so many gpus; options: {part: its options}; pairs: a dataset's
    lines, whose masks are asked for.
    """

    kinds: Mapping[str, Sequence[str]]
    hosts: Mapping[str, str]
    engine: str
    environment: str
    loading: bool
    gpus: int
    options: Mapping[str, dict]
    pairs: Sequence[str]

    def inputs(self, source: str) -> dict[str, object]:
        """Return what the conversations of a source are made from, by name."""
        read = [source, *([self.hosts[source]] if source in self.hosts else [])]
        guests = [guest for guest, host in self.hosts.items() if host == source]
        return {
            "images": f"{SOURCES}/{source}/images.parquet",
            "facts": [f"{SOURCES}/{name}/facts.parquet" for name in read],
            "texts": [f"{FILTERED}/{name}/texts.jsonl" for name in read],
            "phrases": f"{FILTERED}/{source}/phrases.jsonl",
            "elsewhere": [f"{FILTERED}/{name}/phrases.jsonl" for name in guests],
            "pairs": list(self.pairs) if source == OWN else [],
        }

    def of(self, source: str, part: str) -> dict:
        """Return the options of a part of a source."""
        return self.options[part] | {"kinds": list(self.kinds[source])}

    def told(self, source: str, part: str) -> list[str]:
        """Return the file of what a model that is loaded in a job says to a part; none where no such model is asked."""
        return [f"{CONVERSATIONS}/{source}/{part}.told.jsonl"] if self.loading else []

    @property
    def asking(self) -> dict[str, list[str]]:
        """{wildcard: its values} of a job that loads a model: all sources, and all parts that the same model makes."""
        if not self.kinds:
            return {"source": ["{source}"], "part": ["{part}"]}
        same = self.options["train"]["own"] == self.options["test"]["own"]
        return {"source": list(self.kinds), "part": list(PARTS) if same else ["{part}"]}

    @property
    def asking_name(self) -> str:
        """Name of such a job: its wildcards, or all."""
        return "/".join(values[0] for values in self.asking.values() if values[0].startswith("{")) or "all"

    def to_ask(self, wildcards: object) -> dict[str, object]:
        """Return the options of such a job; ``works``: source, part, kinds and files of each of its outputs."""
        values_by_wildcard = {
            name: [value.format(**dict(wildcards.items())) for value in values] for name, values in self.asking.items()
        }
        works = [
            {"source": source, "part": part, "kinds": list(self.kinds[source]), "files": self.inputs(source)}
            for source in values_by_wildcard["source"]
            for part in values_by_wildcard["part"]
        ]
        return self.options[values_by_wildcard["part"][0]] | {"works": works}

    def to_read(self, wildcards: object) -> list[str]:
        """Return the files that such a job reads."""
        files = [file for work in self.to_ask(wildcards)["works"] for file in work["files"].values()]
        return sorted({path for file in files for path in ([file] if isinstance(file, str) else file)})

    def files(self, file: str) -> list[str]:
        """Return a file of the stage for each source that gives conversations."""
        return [f"{CONVERSATIONS}/{source}/{file}" for source in self.kinds]


def conversing(settings: Settings, formats: Mapping[str, str], plain: Mapping) -> Conversing:
    """Return the plan of the conversations. ``formats``: {source in use: format}; ``plain``: the section's keys."""
    section = settings.radvlm.conversations
    declared = settings.radvlm.sources.list
    kinds = {
        name: ["standard", "grounded"] if name == OWN else KINDS[kind]
        for name, kind in formats.items()
        if name == OWN or kind in KINDS
    }
    on = {name: declared[name].pictures for name in kinds if name != OWN and formats[name] in ON_MIMIC}
    hosts = {name: host for name, host in on.items() if host in formats}
    loading = section.engine != RULES and section.llm.transport == "offline"
    gpus = section.llm.execution.gpus if loading else 0
    pairs = [f"results/dataset/{settings.thresholds.build[0]}/{split}.jsonl" for split in SPLITS]
    return Conversing(
        kinds, hosts, section.engine, RULES if section.engine == RULES else "vllm", loading, gpus,
        {part: _options(settings, plain, part) for part in PARTS}, pairs if section.segment_turns else [],
    )  # fmt: skip


def _options(settings: Settings, plain: Mapping, part: str) -> dict:
    """Return the options of a part; ``own``: those of its language model, if it has one."""
    llm = plain["llm"]
    filtered = settings.radvlm.filtered.llm
    model, revision = llm[f"{part}_model"], llm[f"{part}_revision"]
    model_keys = (
        {"model": model, "revision": revision} if model else {"model": filtered.model, "revision": filtered.revision}
    )
    llm_options = {} if plain["engine"] == RULES else model_options(KEY, llm | model_keys, settings.seed)
    return {name: value for name, value in plain.items() if name != "llm"} | {"seed": settings.seed, "own": llm_options}
