"""Models that jobs load, and the jobs that ask a language model.

A model is a name on the Hugging Face hub, or a folder that must exist before any job.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxr.base.errors import existing_folder
from cxr.workflow.settings import Settings

RULES = "rules"
ANSWER_KEYS = ("transport", "model", "revision", "context", "max_tokens", "temperature")
"""Keys that a language model's answer depends on."""
PART_MODELS = ("train_model", "test_model")
"""Settings of the models that make RadVLM's conversations of a part."""


def model_options(key: str, llm: Mapping, seed: int) -> dict:
    """Return the settings of the section ``key`` that a language model's answer depends on, without its execution."""
    return {name: llm[name] for name in ANSWER_KEYS} | {"key": key, "seed": seed}


class ModelJobs:
    """The jobs that ask a language model.

    A job that loads the model does so once, for all files; the clients of a server are one job for each.
    """

    def __init__(self, llm: Any, values: Mapping[str, Sequence[str]], *, is_asked: bool = True):
        """``llm``: the model's section; ``values``: {wildcard: all its values}; ``is_asked``: of the model."""
        self.loads_model = is_asked and llm.transport == "offline"
        self.gpus = llm.execution.gpus if self.loads_model else 0
        # {wildcard: its values in one job}, "{wildcard}" for those of the rule
        is_one_job = self.loads_model and all(values.values())
        self.wildcards = values if is_one_job else {name: [f"{{{name}}}"] for name in values}

    def name(self, pattern: str) -> str:
        """Return a job's name in its log's path: the parts of ``pattern`` with wildcards of the rule, else "all"."""
        rule_wildcards = [name for name, values in self.wildcards.items() if list(values) == [f"{{{name}}}"]]
        parts = [part for part in pattern.split("/") if any(name in part for name in rule_wildcards)]
        return "/".join(parts) or "all"

    def values(self, wildcards: object) -> dict[str, list[str]]:
        """Return {wildcard: its values} of a job with the rule's ``wildcards``."""
        rule_values = dict(wildcards.items())
        return {name: [value.format(**rule_values) for value in values] for name, values in self.wildcards.items()}


def check_models(settings: Settings) -> None:
    """Raise UserError for a model of a chosen engine that is named by a path where no folder is."""
    for key, model in _loaded_models(settings):
        if is_path(model):
            existing_folder(key, model)


def is_path(model: str) -> bool:
    """Return whether a setting names a model by a path instead of a name on the hub.

    A path starts with ".", "/" or "~", has more than two parts, or its first part is an existing folder.
    """
    first, slash, remainder = model.partition("/")
    return model.startswith((".", "/", "~")) or "/" in remainder or (bool(slash) and Path(first).is_dir())


def _loaded_models(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, model) of the models that jobs load."""
    for section, is_used, models in _language_models(settings):
        if is_used and section.transport == "offline":
            yield from models.items()
    tuning = settings.vlm.tuning
    for name, run in tuning.runs.items():
        key = "onevision" if run.model == tuning.onevision.model else f"runs.{name}"
        yield f"vlm.tuning.{key}.model", run.model
    radvlm = settings.radvlm
    annotators = set(radvlm.evaluation.annotators)
    if "chexbert" in annotators or radvlm.sources.labels == "chexbert":
        yield "radvlm.chexbert.model", radvlm.chexbert.model
    if "bertscore" in annotators:
        yield "radvlm.evaluation.bertscore.model", radvlm.evaluation.bertscore.model
    if "radgraph" in annotators:
        yield "radvlm.evaluation.radgraph.encoder", radvlm.evaluation.radgraph.encoder


def _language_models(settings: Settings) -> Iterator[tuple[Any, bool, dict[str, str]]]:
    """Yield (section, whether it is used, {key: model}) of each section of a language model."""
    reports, paraphrase, medground, radvlm = settings.reports, settings.paraphrase, settings.medground, settings.radvlm
    parts = {f"reports.llm.{name}.model": getattr(reports.llm, name).model for name in ("structuring", "mapping")}
    yield reports.llm, reports.engine != RULES, parts
    yield paraphrase.llm, paraphrase.engine != RULES, {"paraphrase.llm.model": paraphrase.llm.model}
    for name, choice in (("queries", medground.queries.engine), ("verification", medground.verification.judge)):
        yield medground.llm, choice == "vllm", {f"medground.{name}.llm.model": getattr(medground, name).llm.model}
    shared, conversations, evaluation = radvlm.llm, radvlm.conversations, radvlm.evaluation
    shared_model = {"radvlm.llm.model": shared.model}
    part_models = {f"radvlm.conversations.llm.{name}": getattr(conversations.llm, name) for name in PART_MODELS}
    is_filtering = radvlm.filtered.engine in ("vllm", "both")
    yield shared, is_filtering or (conversations.engine != RULES and not all(part_models.values())), shared_model
    yield shared, conversations.engine != RULES, {key: model for key, model in part_models.items() if model}
    judge_model = {"radvlm.evaluation.llm.model": evaluation.llm.model} if evaluation.llm.model else shared_model
    yield shared, evaluation.judge == "vllm", judge_model
    yield shared, "green" in evaluation.annotators, {"radvlm.evaluation.green.model": evaluation.green.model}
