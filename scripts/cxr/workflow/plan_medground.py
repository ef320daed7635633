"""MedGround's part of the plan: its sources, their files and options, and the options of its stages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.seeds import shard_names
from cxr.medground.sources.settings import EMBEDDED
from cxr.workflow.models import ModelJobs, model_options
from cxr.workflow.settings import Settings

NUM_SHARDS = 8
ILS_MIN_PX = 64
"""Smallest component of a lesion mask of the kind ils, px."""
ILS = "ils"
"""The kind of the sources that are read from the cohort."""
RESULTS = "results"
"""Folder of this run's results."""
QUESTION_KEYS = ("per_image", "per_image_many", "many", "families", "selection")
"""Keys of the section queries that the questions to a language model depend on."""
JUDGE_KEYS = ("mode", "same_model", "llm")
"""Keys of the section verification that only the questions to the judge depend on."""
IMAGES_PER_QUESTION = {"queries": 2, "verification": 1}
EXPORT_KEYS = ("coordinates", "resized", "withhold", "allow_nd", "audited")
"""Keys of the section dataset that only the exports depend on."""


@dataclass(frozen=True)
class MedgroundPlan:
    """What MedGround's rules take from the settings. Paths are relative to Snakemake's working directory."""

    sources: Mapping[str, dict]  # {source: its settings}
    shards: list[str]  # of each source
    options: Mapping[str, dict]  # {stage: options that all sources share}
    formats: Sequence[str]  # of the exports
    votes: Sequence[str]  # the file of the audit
    texts: Sequence[str]  # the texts of the engine table
    tokenizer: str  # that counts tokens, "" without
    entities: Sequence[str]  # files of the engine that counts concepts, none of the lexicon
    ways: Mapping[str, Sequence[str]]  # {stage: ways in which its language model is asked}
    prompts: Mapping[str, Sequence[str]]  # {stage: the user's wordings}
    model_jobs: Mapping[str, ModelJobs]  # {stage: jobs that ask its language model}
    film_files: Mapping[str, Mapping[str, Sequence[str]]]  # {source: results of ILS that its anatomy comes from}

    @property
    def all_shards(self) -> dict[str, list[str]]:
        """{wildcard: its values} of the files of all sources and shards."""
        return {"source": list(self.sources), "shard": self.shards}

    @property
    def stated(self) -> list[str]:
        """Sources whose queries are the sentences of their descriptions."""
        return [name for name, keys in self.sources.items() if keys["queries"] == "statements"]

    @property
    def queried(self) -> list[str]:
        """Sources whose queries an engine makes."""
        return [name for name in self.sources if name not in self.stated]

    @property
    def unused_texts(self) -> list[str]:
        """The table of the texts that became no candidate, where texts are given."""
        return ["results/medground/queries/unused.parquet"] if self.texts else []

    def group(self, *stages: str) -> str | None:
        """Return the SLURM group of a rule that follows the jobs that ask the models of ``stages``.

        None if one of them asks a model: its job stands between others of the group, which would wait for itself.
        """
        return None if any(self.ways[stage] for stage in stages) else "medground"

    def model_options(self, stage: str) -> Callable[[object], dict]:
        """Return, as a function of a job's wildcards, the options of asking a stage's language model."""

        def options(wildcards: object) -> dict:
            values = self.model_jobs[stage].values(wildcards)
            sources = [source for source in values["source"] for _ in values["shard"]]
            ways = {"ways": values["asked"]} if "asked" in values else {}
            return dict(self.options[f"{stage}_told"]) | {"of": sources} | ways

        return options

    def answer_files(self, stage: str, way: str) -> Callable[[object], list[str]]:
        """Return, as an input function, the file of a language model's answers that a shard's rule reads.

        There is none if the model is not asked in this way, or if the source's queries are statements.
        """

        def files(wildcards: object) -> list[str]:
            if way not in self.ways[stage] or wildcards.source in self.stated:
                return []
            return [f"results/medground/{stage}/{wildcards.source}/{wildcards.shard}.{way}.jsonl"]

        return files

    def source_files(self, source: str) -> dict:
        """Return {name: files} that a source is read from."""
        keys = self.sources[source]
        if keys["kind"] in EMBEDDED:
            return {}
        path_key = {"medsegbench": "npz", "lvit": "folder"}.get(keys["kind"], "manifest")
        return {path_key: keys[path_key]} | self.film_files.get(source, {})

    def source_pattern(self, *, cohort: bool) -> str:
        """Return a pattern of the sources that are the cohort's, or of all others; it matches nothing if none is."""
        names = [re.escape(name) for name, keys in self.sources.items() if (keys["kind"] == ILS) == cohort]
        return "|".join(names) or "(?!)"

    def source_options(self, stage: str, source: str) -> dict:
        """Return the options of a stage for one source."""
        options, keys = dict(self.options[stage]), self.sources[source]
        if stage == "sources":
            cell_options = {} if keys["kind"] == "cells" else {"cells": 0, "seed": 0}  # no other kind depends on them
            return options | cell_options | {"name": source, "source": keys}
        if stage == "regions":
            return options | ({"min_px": ILS_MIN_PX} if keys["kind"] == ILS else {})
        stated = {"statements": source in self.stated} if stage in ("queries", "verification") else {}
        return options | {"source": source} | stated


def make_medground_plan(settings: Settings, shards: Sequence[str], threshold_sets: Sequence[str]) -> MedgroundPlan:
    """Return the plan. ``shards``: of the cohort; ``threshold_sets``: names. Raises UserError for wrong settings."""
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
    names = _shard_names(sets, plain["sources"].pop("shards"), shards)
    audit = plain.pop("audit")
    stated = [name for name, source in sets.items() if source["queries"] == "statements"]
    queried = [name for name in sets if name not in stated]
    asked_options, model_fields = _model_fields(settings, plain, seed, queried, names)
    options = {name: keys | {"seed": seed} for name, keys in plain.items()}
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
    options["dataset"] |= query_limits | {"uses": uses, "stated": stated, "sources": list(sets), "shards": names}
    export = {name: options["dataset"].pop(name) for name in EXPORT_KEYS}
    files = {"sources": list(sets), "shards": names}
    options["export"], options["language"] = export | files, files
    options |= asked_options
    options["chart"] = {"dpi": settings.figures.dpi}
    options["gallery"] = files | {"quality": settings.figures.quality, "seed": seed}
    audit_options = {"queries": settings.review.positives, "seed": settings.review.seed}
    options["audit_units"] = audit_options | {"sources": list(sets), "shards": names}
    formats, tokenizer = options["dataset"].pop("export"), options["dataset"].pop("tokenizer")
    if tokenizer and not Path(tokenizer).is_dir():
        existing_file("medground.dataset.tokenizer", tokenizer)
    entities = _entity_files(options["dataset"].pop("entities"), options["dataset"].pop("scispacy"), options)
    votes = [str(existing_file("medground.audit", audit))] if audit else []
    films = {name: find_film_files(name, source, shards) for name, source in sets.items() if source["anatomy"]}
    texts = [texts_path] if texts_path else []
    return MedgroundPlan(
        sets, names, options, formats, votes, texts, tokenizer, entities, **model_fields, film_files=films
    )


def _entity_files(engine: str, folders: Mapping[str, str], options: dict) -> list[str]:
    """Put the options of the engine that counts concepts into ``options``, and return the files of its folders.

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


def find_film_files(name: str, keys: Mapping, shards: Sequence[str]) -> dict[str, list[str]]:
    """Return {name: files} of the results of ILS that a source's anatomy comes from; ``shards``: of this run's cohort.

    Raises UserError if another run's folder lacks them.
    """
    folder = Path(keys["anatomy"])
    is_own_run = folder.resolve() == Path(RESULTS).resolve()
    stages = ["frames", "organs", "anatomy", *(["anomaly"] if keys["anomaly"] == "results" else [])]
    if not is_own_run:
        existing_folder(f"medground.sources.sets.{name}.anatomy", keys["anatomy"])
        shards = sorted(path.stem for path in (folder / "anatomy").glob("*.h5"))
        expected_files = [f"{stage}/{shard}.h5" for stage in stages for shard in shards]
        expected_files += [f"cohort/{shard}.parquet" for shard in shards]
        missing = [file for file in expected_files or ["anatomy/*.h5"] if not (folder / file).is_file()]
        if missing:
            raise UserError(
                f"medground.sources.sets.{name}.anatomy: {keys['anatomy']!r} has no {missing[0]}: give the folder "
                f"results of a run of `snakemake {stages[-1]}`"
            )
    folder = RESULTS if is_own_run else folder
    return {"film_cohort": [f"{folder}/cohort/{shard}.parquet" for shard in shards]} | {
        f"film_{stage}": [f"{folder}/{stage}/{shard}.h5" for shard in shards] for stage in stages
    }


def _model_fields(
    settings: Settings, plain: dict, seed: int, queried: list[str], shards: list[str]
) -> tuple[dict[str, dict], dict[str, dict]]:
    """Return {rule: options} of the rules that ask a language model, and the fields of the plan that they need.

    ``queried``: sources whose queries an engine makes. Takes the keys of the models out of ``plain``. Raises UserError
    for a missing file of wordings.
    """
    section, queries, verification = settings.medground, plain["queries"], plain["verification"]
    questions = {name: queries[name] for name in QUESTION_KEYS}
    del queries["selection"]
    llm = {"queries": queries.pop("llm"), "verification": verification["llm"]}
    for name in JUDGE_KEYS:
        verification.pop(name)
    engines = {"queries": section.queries.engine, "verification": section.verification.judge}
    mode = section.verification.mode
    ways = {"queries": ["told"], "verification": ["confirm", "select"] if mode == "both" else [mode]}
    ways = {stage: names if engines[stage] == "vllm" else [] for stage, names in ways.items()}
    options = {
        stage: model_options(f"medground.{stage}.llm", keys, seed)
        | {"pictures": IMAGES_PER_QUESTION[stage], "picture_tokens": keys["picture_tokens"]}
        for stage, keys in llm.items()
    }
    asked_options = {
        "queries_told": options["queries"] | questions | {"form": llm["queries"]["form"]},
        "verification_told": options["verification"],
    }
    prompts = {
        stage: [str(existing_file(f"medground.{stage}.llm.prompts", keys["prompts"]))] if keys["prompts"] else []
        for stage, keys in llm.items()
    }
    values = {"source": queried, "shard": shards}
    jobs = {
        "queries": ModelJobs.of_section(section.queries.llm, values, is_asked=bool(ways["queries"])),
        "verification": ModelJobs.of_section(section.verification.llm, {"asked": ways["verification"]} | values),
    }
    return asked_options, {"ways": ways, "prompts": prompts, "model_jobs": jobs}


def _shard_names(sets: Mapping[str, dict], num_shards: int | None, cohort: Sequence[str]) -> list[str]:
    """Return the names of the sources' shards: the cohort's, if one of them is read from it, shard by shard.

    Raises UserError if the settings ask for another number.
    """
    kinds = {name: source["kind"] for name, source in sets.items()}
    if ILS in kinds.values():
        if num_shards not in (None, len(cohort)):
            raise UserError(
                f"medground.sources.shards is {num_shards}, but a source of kind {ILS} has the cohort's {len(cohort)}: "
                "leave it out, or change cohort.shards"
            )
        return list(cohort)
    return shard_names(num_shards or (1 if set(kinds.values()) <= set(EMBEDDED) else NUM_SHARDS))
