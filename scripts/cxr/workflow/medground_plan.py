"""MedGround's part of the plan: its sources, their files and options, and the options of its stages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.seeds import shard_names
from cxr.workflow.params import model_options
from cxr.workflow.settings import Settings
from cxr.workflow.settings.medground.sources import EMBEDDED

SHARDS = 8
ILS = "ils"
"""The kind of the sources that are read from the cohort."""
OWN = "results"
"""Folder of this run's results."""
ROOT = "results/medground"
QUESTIONS = ("per_image", "per_image_many", "many", "kinds", "max_atoms", "budget", "families", "selection")
"""Keys of the section queries that the questions to a language model depend on."""
VERDICTS = ("judge", "mode", "same_model", "llm")
"""Keys of the section verification that say which model is asked what."""
PICTURES = {"queries": 2, "verification": 1}
"""Images of one question, by stage."""
EXPORT = ("coordinates", "resized", "withhold", "allow_nd", "audited")
"""Keys of the section dataset that the exports alone depend on."""


@dataclass(frozen=True)
class MedgroundPlan:
    """sources: {name: its keys}; shards: their names; options: {stage: what all sources share}; formats: of the
    exports; votes: the file of the audit; given: the texts of the engine table; tokenizer: of tokens, or empty;
    entities: files of the engine that counts concepts, none for the lexicon; asks:
    {stage: ways in which its language model is asked}; prompts: {stage: the user's wordings}; loading: {stage: whether
    the model is loaded in the job}; gpus: {stage: GPUs of such a job}; films: {source: the files of ILS for its films}.
    """

    sources: Mapping[str, dict]
    shards: list[str]
    options: Mapping[str, dict]
    formats: Sequence[str]
    votes: Sequence[str]
    given: Sequence[str]
    tokenizer: str
    entities: Sequence[str]
    asks: Mapping[str, Sequence[str]]
    prompts: Mapping[str, Sequence[str]]
    loading: Mapping[str, bool]
    gpus: Mapping[str, int]
    films: Mapping[str, Mapping[str, Sequence[str]]]

    @property
    def unused(self) -> list[str]:
        """Return the table of the given texts that became no candidate, where texts are given."""
        return [f"{ROOT}/queries/unused.parquet"] if self.given else []

    def group(self, *stages: str) -> str | None:
        """Return the SLURM group of a rule that follows the asking of ``stages``.

        None where one of them asks a model: its job stands between others of the group, which would wait for itself.
        """
        return None if any(self.asks[stage] for stage in stages) else "medground"

    def asking(self, stage: str) -> dict[str, list[str]]:
        """Return {wildcard: its values} of the files of a job that asks a stage's language model.

        A model in the job is loaded once for all sources and shards; the clients of a server are a job for each.
        """
        if self._one_job(stage):
            return {"source": self._sources(exclude_stated=True), "shard": self.shards}
        return {"source": ["{source}"], "shard": ["{shard}"]}

    def asking_name(self, stage: str, shard_name: str) -> str:
        """Return the name of such a job: all, or ``shard_name``, that of a shard's."""
        return "all" if self._one_job(stage) else shard_name

    def ways(self, stage: str) -> list[str]:
        """Return the ways in which such a job asks: all of them, or the wildcard's."""
        return list(self.asks[stage]) if self._one_job(stage) else ["{asked}"]

    def _one_job(self, stage: str) -> bool:
        return bool(self.loading[stage] and self.asks[stage] and self._sources(exclude_stated=True))

    def to_ask(self, stage: str) -> Callable[[object], dict]:
        """Return, as a function of a job's wildcards, the options of asking a stage's language model."""

        def options(wildcards: object) -> dict:
            files = self.asking(stage)
            values = dict(wildcards.items())
            sources = [name.format(**values) for name in files["source"] for _ in files["shard"]]
            ways = {"ways": [way.format(**values) for way in self.ways(stage)]} if stage == "verification" else {}
            return dict(self.options[f"{stage}_told"]) | {"of": sources} | ways

        return options

    def answer_files(self, stage: str, way: str) -> Callable[[object], list[str]]:
        """Return, as an input function, the file of a language model's answers that a shard's rule reads.

        None where it is not asked so, or the source's queries are statements.
        """

        def files(wildcards: object) -> list[str]:
            if way not in self.asks[stage] or wildcards.source in self.stated:
                return []
            return [f"{ROOT}/{stage}/{wildcards.source}/{wildcards.shard}.{way}.jsonl"]

        return files

    @property
    def stated(self) -> list[str]:
        """Return the sources whose queries are the sentences of their descriptions."""
        return [name for name, keys in self.sources.items() if keys["queries"] == "statements"]

    def files(self, source: str) -> dict:
        """Return {name: files} that a source is read from."""
        keys = self.sources[source]
        if keys["kind"] in EMBEDDED:
            return {}
        path_key = {"medsegbench": "npz", "lvit": "folder"}.get(keys["kind"], "manifest")
        return {path_key: keys[path_key]} | self.films.get(source, {})

    def of_cohort(self, source: str, shard: str) -> dict:
        """Return {name: files} that a shard of a source of the cohort is read from."""
        folder = f"results/masks/{self.sources[source]['thresholds']}"
        stages = {stage: [f"results/{stage}/{shard}.h5"] for stage in ("frames", "organs", "anatomy")}
        return stages | {
            "cohort": "results/cohort/images.parquet",
            "findings": f"{folder}/findings.parquet",
            "masks": [f"{folder}/{shard}.h5"],
        }

    def named(self, *, cohort: bool) -> str:
        """Return a pattern of the names of the sources that are the cohort's, or of all others; it matches none if
        there is none."""
        names = [re.escape(name) for name, keys in self.sources.items() if (keys["kind"] == ILS) == cohort]
        return "|".join(names) or "(?!)"

    def of_source(self, stage: str, source: str) -> dict:
        """Return the options of a stage for one source."""
        options, keys = dict(self.options[stage]), self.sources[source]
        if stage == "sources":
            cell_options = {} if keys["kind"] == "cells" else {"cells": 0, "seed": 0}  # which no other kind depends on
            alike = {} if keys["anatomy"] else {"same_picture": 1.0}
            return options | cell_options | alike | {"name": source, "source": keys}
        if stage == "regions":
            least = options.pop("min_px_ils")
            return options | ({"min_px": least} if keys["kind"] == "ils" else {})
        stated = {"statements": source in self.stated} if stage in ("queries", "verification") else {}
        return options | {"source": source} | stated

    def of_sources(self, stage: str, file: str, *, exclude_stated: bool = False) -> list[str]:
        """Return a file of a stage for each source; ``exclude_stated``: without the sources :attr:`stated`."""
        return [f"{ROOT}/{stage}/{source}/{file}" for source in self._sources(exclude_stated)]

    def parts(self, stage: str, ending: str, *, exclude_stated: bool = False) -> list[str]:
        """Return the files of a stage, of each source and shard in this order.

        ``exclude_stated``: without the sources :attr:`stated`.
        """
        return [
            f"{ROOT}/{stage}/{source}/{shard}.{ending}"
            for source in self._sources(exclude_stated)
            for shard in self.shards
        ]

    def _sources(self, exclude_stated: bool) -> list[str]:
        return [name for name in self.sources if not (exclude_stated and name in self.stated)]


def medground_plan(settings: Settings, shards: Sequence[str], threshold_sets: Sequence[str]) -> MedgroundPlan:
    """Return the plan. ``shards``: of the cohort; ``threshold_sets``: the threshold sets. Raises UserError."""
    plain, seed = settings.medground.as_dict(), settings.seed
    del plain["sources"]["sets"]
    sources = settings.medground.sources.in_use(settings.cohort.source)
    sets = {name: source.as_dict() for name, source in sources.items()}
    for name, source in sets.items():
        if source["kind"] == "ils" and source["thresholds"] not in threshold_sets:
            raise UserError(
                f"medground.sources.sets.{name}.thresholds is {source['thresholds']!r}: choose one of "
                f"{', '.join(threshold_sets)}"
            )
        if source["kind"] == "medsegbench":
            existing_file(f"medground.sources.sets.{name}.npz", source["npz"])
        elif source["kind"] not in EMBEDDED:
            if source["kind"] == "lvit":
                existing_folder(f"medground.sources.sets.{name}.folder", source["folder"])
            else:
                existing_file(f"medground.sources.sets.{name}.manifest", source["manifest"])
            source["classes"] = source["classes"] or {"region": {"one": "", "many": "", "parents": {}, "ask": True}}
    names = _shards(sets, plain["sources"].pop("shards"), shards)
    audit = plain.pop("audit")
    asked_of, models = _models(settings, plain, seed)
    options = {name: keys | {"seed": seed} for name, keys in plain.items() if name != "logic"}
    for name in ("queries", "verification"):
        if name in options:
            options[name]["logic"] = plain["logic"]
    options["sources"] |= {
        "max_pixels": settings.frames.max_pixels,
        "burned_in": settings.privacy.burned_in,
        "scrub": settings.privacy.texts == "scrub",
    }
    texts_path = options["queries"].pop("table")
    if options["queries"]["engine"] != "table":
        texts_path = ""
    elif not Path(texts_path).is_dir():
        existing_file("medground.queries.table", texts_path)
    query_limits = {name: plain["queries"][name] for name in ("per_image", "per_image_many", "many")}
    uses = {name: source["use"] for name, source in sets.items()}
    stated = [name for name, source in sets.items() if source["queries"] == "statements"]
    options["dataset"] |= query_limits | {"uses": uses, "stated": stated, "sources": list(sets), "shards": names}
    export = {name: options["dataset"].pop(name) for name in EXPORT}
    files = {"sources": list(sets), "shards": names}
    options["export"], options["language"] = export | files, files
    options |= asked_of
    options["chart"] = {"dpi": settings.figures.dpi}
    num_examples = options["dataset"].pop("gallery")
    options["gallery"] = files | {"each": num_examples, "quality": settings.figures.quality, "seed": seed}
    audit_options = {"queries": settings.review.positives, "seed": settings.review.seed}
    options["audit_units"] = audit_options | {"sources": list(sets), "shards": names}
    formats, tokenizer = options["dataset"].pop("export"), options["dataset"].pop("tokenizer")
    if tokenizer and not Path(tokenizer).is_dir():
        existing_file("medground.dataset.tokenizer", tokenizer)
    entities = _entities(options["dataset"].pop("entities"), options["dataset"].pop("scispacy"), options)
    votes = [str(existing_file("medground.audit", audit))] if audit else []
    films = {name: film_files(name, source, shards) for name, source in sets.items() if source["anatomy"]}
    texts = [texts_path] if texts_path else []
    return MedgroundPlan(sets, names, options, formats, votes, texts, tokenizer, entities, **models, films=films)


def _entities(engine: str, folders: Mapping[str, str], options: dict) -> list[str]:
    """Return the files that lie in the folders of the engine that counts concepts, and give it its options.

    spaCy writes ``config.cfg`` and ``meta.json`` there whenever it saves a pipeline. Raises UserError.
    """
    options["entities"] = dict(folders)
    if engine == "lexicon":
        return []
    pipeline_folders = {
        name: existing_folder(f"medground.dataset.scispacy.{name}", path) for name, path in folders.items() if path
    }
    return sorted(
        str(file) for folder in pipeline_folders.values() for file in Path(folder).iterdir() if file.is_file()
    )


def film_files(name: str, keys: Mapping, shards: Sequence[str]) -> dict[str, list[str]]:
    """Return {name: files} of the results of ILS that a source's anatomy comes from; ``shards``: of this run's cohort.

    Raises UserError where another run's folder lacks them.
    """
    folder = Path(keys["anatomy"])
    is_own_run = folder.resolve() == Path(OWN).resolve()
    stages = ["frames", "organs", "anatomy", *(["anomaly"] if keys["anomaly"] == "results" else [])]
    if not is_own_run:
        existing_folder(f"medground.sources.sets.{name}.anatomy", keys["anatomy"])
        shards = sorted(path.stem for path in (folder / "anatomy").glob("*.h5"))
        expected_files = [f"{stage}/{shard}.h5" for stage in stages for shard in shards]
        expected_files += [f"cohort/{shard}.parquet" for shard in shards]
        lost = [file for file in expected_files or ["anatomy/*.h5"] if not (folder / file).is_file()]
        if lost:
            raise UserError(
                f"medground.sources.sets.{name}.anatomy: {keys['anatomy']!r} has no {lost[0]}: give the folder results "
                f"of a run of `snakemake {stages[-1]}`"
            )
    folder = OWN if is_own_run else folder
    return {"film_cohort": [f"{folder}/cohort/{shard}.parquet" for shard in shards]} | {
        f"film_{stage}": [f"{folder}/{stage}/{shard}.h5" for shard in shards] for stage in stages
    }


def _models(settings: Settings, plain: dict, seed: int) -> tuple[dict[str, dict], dict[str, dict]]:
    """Return {rule: options} of the rules that ask a language model, and the fields of the plan that they need.

    Takes the keys of the models out of ``plain``. Raises UserError for a file of wordings that is missing.
    """
    queries, verification = plain["queries"], plain["verification"]
    questions = {name: queries[name] for name in QUESTIONS} | {"logic": plain["logic"]}
    del queries["selection"]
    llm = {"queries": queries.pop("llm"), "verification": verification["llm"]}
    for name in VERDICTS[1:]:
        verification.pop(name)
    engines = {"queries": settings.medground.queries.engine, "verification": settings.medground.verification.judge}
    mode = settings.medground.verification.mode
    asks = {"queries": ["told"], "verification": ["confirm", "select"] if mode == "both" else [mode]}
    options = {
        stage: model_options(f"medground.{stage}.llm", keys, seed)
        | {"pictures": PICTURES[stage], "picture_tokens": keys["picture_tokens"]}
        for stage, keys in llm.items()
    }
    asked_of = {
        "queries_told": options["queries"] | questions | {"form": llm["queries"]["form"]},
        "verification_told": options["verification"] | {"select_from": llm["verification"]["select_from"]},
    }
    loading = {stage: keys["transport"] == "offline" for stage, keys in llm.items()}
    return asked_of, {
        "asks": {stage: names if engines[stage] == "vllm" else [] for stage, names in asks.items()},
        "prompts": {
            stage: [str(existing_file(f"medground.{stage}.llm.prompts", keys["prompts"]))] if keys["prompts"] else []
            for stage, keys in llm.items()
        },
        "loading": loading,
        "gpus": {stage: keys["execution"]["gpus"] if loading[stage] else 0 for stage, keys in llm.items()},
    }


def _shards(sets: Mapping[str, dict], num_shards: int | None, cohort: Sequence[str]) -> list[str]:
    """Return the names of the sources' shards: the cohort's, where one of them is read from it, shard by shard.

    Raises UserError where another number is asked.
    """
    kinds = {name: source["kind"] for name, source in sets.items()}
    if ILS in kinds.values():
        if num_shards not in (None, len(cohort)):
            raise UserError(
                f"medground.sources.shards is {num_shards}, but a source of kind {ILS} has the cohort's {len(cohort)}: "
                "leave it out, or change cohort.shards"
            )
        return list(cohort)
    return shard_names(num_shards or (1 if set(kinds.values()) <= set(EMBEDDED) else SHARDS))
