"""MedGround's part of the plan of a run: its data sources with their files, and the options of its stages."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.seeds import shard_names
from cxr.medground.sources.settings import EMBEDDED
from cxr.workflow.models import ModelJobs, model_options
from cxr.workflow.settings import Settings

NUM_SHARDS = 8
ILS_MIN_PX = 64
"""Minimum area in pixels of a connected component of a lesion mask, for sources of kind ``ils``."""
ILS = "ils"
"""Kind of a source that consists of the cohort's images and their lesion masks from ILS."""
RESULTS = "results"
"""Folder of this run's results."""
PATH_KEYS = {"medsegbench": "npz", "lvit": "folder"}
"""{kind of source: name of its setting for a file or folder}. For other kinds with files the name is ``manifest``."""
QUESTION_KEYS = ("per_image", "families", "selection")
"""Keys of the settings ``medground.queries`` that affect the questions to a language model."""
EXPORT_KEYS = ("coordinates", "resized", "withhold", "allow_nd", "audited")
"""Keys of the settings ``medground.dataset`` that affect only the exports."""


class MedgroundPlan:
    """Files and options of MedGround's rules, from the settings. Paths are relative to the working directory."""

    def __init__(self, settings: Settings, shards: Sequence[str], threshold_sets: Sequence[str]):
        """Derive the plan from the settings. Raises UserError for wrong settings.
        ``shards``: names of the cohort's shards. ``threshold_sets``: names of all threshold sets."""
        section = settings.medground
        sources = section.sources.in_use(settings.cohort.source)
        self.sources = {name: source.as_dict() for name, source in sources.items()}  # {source: its settings}
        for name, source in self.sources.items():
            _check_source(name, source, threshold_sets)
        # names of the shards of each source
        self.shards = _shard_names(self.sources, section.sources.shards, shards)
        # sources whose queries are the sentences of their descriptions, and sources with generated queries
        self.stated = [name for name, source in self.sources.items() if source["queries"] == "statements"]
        self.queried = [name for name in self.sources if name not in self.stated]
        # {wildcard: all its values} for files that exist for each source and shard
        self.all_shards = {"source": list(self.sources), "shard": self.shards}
        # {stage: options that all sources share}
        self.options = _stage_options(settings, self.sources, self.stated)
        # files of the user, [] for none: query texts of the engine table, prompts, and votes of the audit
        self.texts = [section.queries.table] if section.queries.engine == "table" else []
        if self.texts and not Path(section.queries.table).is_dir():
            existing_file("medground.queries.table", section.queries.table)
        # the table of the user's query texts that became no candidate query
        self.unused_texts = ["results/medground/queries/unused.parquet"] if self.texts else []
        self.prompts = [str(existing_file("medground.llm.prompts", path)) for path in [section.llm.prompts] if path]
        self.votes = [str(existing_file("medground.audit", path)) for path in [section.audit] if path]
        # formats of the exports; the tokenizer that counts their tokens, "" for none
        self.formats, self.tokenizer = section.dataset.export, section.dataset.tokenizer
        if self.tokenizer and not Path(self.tokenizer).is_dir():
            existing_file("medground.dataset.tokenizer", self.tokenizer)
        # model files of the engine that counts medical concepts, [] for the lexicon
        self.entities = _list_entity_files(section.dataset)
        # ways: {stage: tasks of its language model, see answer_files}; model_jobs: {stage: jobs that ask the model}
        mode = section.verification.mode
        modes = ["confirm", "select"] if mode == "both" else [mode]
        self.ways = {
            "queries": ["told"] if section.queries.engine == "vllm" else [],
            "verification": modes if section.verification.judge == "vllm" else [],
        }
        values = {"source": self.queried, "shard": self.shards}
        self.model_jobs = {
            "queries": ModelJobs(settings.llm, values, is_asked=bool(self.ways["queries"])),
            "verification": ModelJobs(settings.llm, {"asked": self.ways["verification"]} | values),
        }
        # {source: result files of ILS from which its anatomy is taken}
        self.film_files = {
            name: find_film_files(name, source, shards) for name, source in self.sources.items() if source["anatomy"]
        }

    def group(self, *stages: str) -> str | None:
        """Return the SLURM group of a rule that runs after ``stages``, or None if one of them asks a language model.
        A job that asks a model is in no group. A group with jobs before and after that job would wait for itself."""
        return None if any(self.ways[stage] for stage in stages) else "medground"

    def model_options(self, stage: str, wildcards: Any) -> dict:
        """Return the options of the job with these ``wildcards`` that asks the language model of a stage."""
        values = self.model_jobs[stage].values(wildcards)
        sources = [source for source in values["source"] for _ in values["shard"]]
        ways = {"ways": values["asked"]} if "asked" in values else {}
        return dict(self.options[f"{stage}_told"]) | {"shard_sources": sources} | ways

    def answer_files(self, stage: str, way: str, wildcards: Any) -> list[str]:
        """Return [file of a language model's answers for one shard], or [] if the model is not asked.

        ``way``: "told" (the model writes queries), "confirm" (it judges the boxes) or "select" (it chooses boxes).
        The model is not asked about sources whose queries are the sentences of their descriptions.
        """
        if way not in self.ways[stage] or wildcards.source in self.stated:
            return []
        return [f"results/medground/{stage}/{wildcards.source}/{wildcards.shard}.{way}.jsonl"]

    def source_files(self, source: str) -> dict:
        """Return {name of an input: files} that a source is read from."""
        keys = self.sources[source]
        if keys["kind"] in EMBEDDED:
            return {}
        path_key = PATH_KEYS.get(keys["kind"], "manifest")
        return {path_key: keys[path_key]} | self.film_files.get(source, {})

    def source_pattern(self, *, cohort: bool) -> str:
        """Return a regular expression for the names of the sources that are read from the cohort.
        If ``cohort`` is false, it matches all other names. It matches nothing if there are no such sources."""
        names = [re.escape(name) for name, keys in self.sources.items() if (keys["kind"] == ILS) == cohort]
        return "|".join(names) or "(?!)"

    def source_options(self, stage: str, source: str) -> dict:
        """Return the options of a stage for one source."""
        options, keys = dict(self.options[stage]), self.sources[source]
        if stage == "sources":
            if keys["kind"] != "cells":  # no other kind depends on them
                del options["cells"], options["seed"]
            return options | {"name": source, "source": keys}
        if stage == "regions":
            return options | ({"min_px": ILS_MIN_PX} if keys["kind"] == ILS else {})
        name = {"source": source} if stage == "queries" else {}
        return options | name | {"statements": source in self.stated}


def _stage_options(settings: Settings, sources: Mapping[str, dict], stated: Sequence[str]) -> dict[str, dict]:
    section, seed = settings.medground, {"seed": settings.seed}
    queries, dataset = section.queries.as_dict(), section.dataset.as_dict()
    return {
        "sources": section.sources.as_dict(without=("sets", "shards"))
        | seed
        | {"burned_in": settings.privacy.burned_in, "scrub": settings.privacy.texts == "scrub"},
        "regions": section.regions.as_dict() | seed,
        "queries": section.queries.as_dict(without=("selection", "table", "llm")) | seed,
        "verification": section.verification.as_dict(without=("mode", "same_model", "llm")),
        "dataset": {"uses": {name: source["use"] for name, source in sources.items()}, "stated": stated}
        | {"per_image": section.queries.per_image}
        | seed,
        "entities": dataset["scispacy"],
        "export": {name: dataset[name] for name in EXPORT_KEYS},
        "scoring": section.scoring.as_dict() | {"replicates": settings.replicates} | seed,
        "queries_told": _model_options(settings, "queries", num_images=2)
        | {name: queries[name] for name in QUESTION_KEYS}
        | {"form": section.queries.llm.form},
        "verification_told": _model_options(settings, "verification", num_images=1),
    }


def _check_source(name: str, source: dict, threshold_sets: Sequence[str]) -> None:
    """Check the settings of a source and add default classes. Raises UserError for a wrong threshold set or path."""
    key, kind = f"medground.sources.sets.{name}", source["kind"]
    if kind == ILS and source["thresholds"] not in threshold_sets:
        raise UserError(f"{key}.thresholds is {source['thresholds']!r}: choose one of {', '.join(threshold_sets)}")
    if kind not in EMBEDDED:
        path_key = PATH_KEYS.get(kind, "manifest")
        (existing_folder if kind == "lvit" else existing_file)(f"{key}.{path_key}", source[path_key])
        if kind != "medsegbench":
            source["classes"] = source["classes"] or {"region": {"one": "", "many": "", "parents": {}, "ask": True}}


def _model_options(settings: Settings, stage: str, num_images: int) -> dict:
    """Return the options of a stage's language model. ``num_images``: number of images in one question."""
    llm = {"temperature": 0.0} | settings.medground.llm.as_dict() | getattr(settings.medground, stage).llm.as_dict()
    images = {"pictures": num_images, "picture_tokens": llm["picture_tokens"]}
    return model_options(settings, f"medground.{stage}.llm", llm) | images


def _list_entity_files(dataset) -> list[str]:
    """Return the model files of the engine that counts medical concepts, [] for the engine ``lexicon``.

    Only files directly in the model folders are listed. Among them are ``config.cfg`` and ``meta.json``, which spaCy
    writes whenever it saves a model. Raises UserError for a missing folder.
    """
    if dataset.entities == "lexicon":
        return []
    folders = [
        existing_folder(f"medground.dataset.scispacy.{name}", path)
        for name, path in dataset.scispacy.as_dict().items()
        if path
    ]
    return sorted(str(file) for folder in folders for file in Path(folder).iterdir() if file.is_file())


def find_film_files(name: str, keys: Mapping, shards: Sequence[str]) -> dict[str, list[str]]:
    """Return {name of an input: result files of ILS} from which the anatomy of a source is taken.

    ``keys``: the source's settings, whose ``anatomy`` is the results folder of this run or of another one.
    ``shards``: names of this cohort's shards. Raises UserError if another run's folder lacks a file.
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
                f"medground.sources.sets.{name}.anatomy: the folder {keys['anatomy']!r} has no {missing[0]}: give the "
                f"results folder of a run of `snakemake {stages[-1]}`"
            )
    folder = RESULTS if is_own_run else folder
    return {"film_cohort": [f"{folder}/cohort/{shard}.parquet" for shard in shards]} | {
        f"film_{stage}": [f"{folder}/{stage}/{shard}.h5" for shard in shards] for stage in stages
    }


def _shard_names(sets: Mapping[str, dict], num_shards: int | None, cohort: Sequence[str]) -> list[str]:
    """Return the shard names that all sources share. They are the cohort's if a source is read from the cohort.

    ``sets``: {source: its settings}. ``num_shards``: the setting ``shards``. ``cohort``: names of the cohort's shards.
    Raises UserError if a source is read from the cohort and the cohort has another number of shards.
    """
    kinds = {source["kind"] for source in sets.values()}
    if ILS in kinds:
        if num_shards not in (None, len(cohort)):
            raise UserError(
                f"medground.sources.shards is {num_shards}, but a source of kind {ILS} has the cohort's {len(cohort)} "
                "shards: leave the setting out, or change cohort.shards"
            )
        return list(cohort)
    return shard_names(num_shards or (1 if kinds <= set(EMBEDDED) else NUM_SHARDS))
