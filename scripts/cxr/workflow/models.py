"""Models that jobs load, and the jobs that ask a language model.

A setting gives a model as a name on the Hugging Face hub or as a folder. The folder must exist before any job.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cxr.base.errors import existing_folder
from cxr.llm.settings import LlmSettings
from cxr.workflow.settings import Settings

RULES = "rules"
ANSWER_KEYS = ("transport", "model", "revision", "context", "max_tokens", "temperature")
"""Settings that a language model's answer depends on."""


def model_options(settings: Settings, key: str, model: Mapping) -> dict:
    """Return the options that a language model's answer depends on.

    ``key``: section of the model's settings, for messages. ``model``: values of this section, which override ``llm``.
    """
    values = settings.llm.as_dict() | model
    return {name: values[name] for name in ANSWER_KEYS} | {"key": key, "seed": settings.seed}


class ModelJobs:
    """The jobs that ask a language model.

    If the job itself loads the model, one job processes all files, so the model is loaded once. If a server runs the
    model, each file has its own job.
    """

    def __init__(self, llm: LlmSettings, values: Mapping[str, Sequence[str]], *, is_asked: bool = True):
        """``values``: {wildcard of the jobs' rule: all its values}. ``is_asked``: whether the model is used."""
        self.loads_model = is_asked and llm.transport == "offline"
        self.gpus = llm.gpus if self.loads_model else 0
        # {wildcard: its values in one job}; "{wildcard}" stands for the value in the path of the rule's output
        is_one_job = self.loads_model and all(values.values())
        self.wildcards = values if is_one_job else {name: [f"{{{name}}}"] for name in values}

    def name(self, pattern: str) -> str:
        """Return the name of a job for the path of its log, from a ``pattern`` such as "{source}/{shard}".
        If one job processes all values of the wildcards, the name is "all"."""
        rule_wildcards = [name for name, values in self.wildcards.items() if list(values) == [f"{{{name}}}"]]
        parts = [part for part in pattern.split("/") if any(name in part for name in rule_wildcards)]
        return "/".join(parts) or "all"

    def values(self, wildcards: object) -> dict[str, list[str]]:
        """Return {wildcard: values that the job processes}. ``wildcards``: the wildcards of the job's rule."""
        rule_values = dict(wildcards.items())
        return {name: [value.format(**rule_values) for value in values] for name, values in self.wildcards.items()}


def check_models(settings: Settings) -> None:
    """Raise UserError if a setting in use names a model by a path at which there is no folder."""
    for key, model in _loaded_models(settings):
        if is_path(model):
            existing_folder(key, model)


def is_path(model: str) -> bool:
    """Return whether ``model`` is a path and not a name on the Hugging Face hub.
    A path starts with ".", "/" or "~", has more than two parts, or its first part is an existing folder."""
    first, slash, remainder = model.partition("/")
    return model.startswith((".", "/", "~")) or "/" in remainder or (bool(slash) and Path(first).is_dir())


def _loaded_models(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key of the setting, model) for each model that jobs load."""
    if settings.llm.transport == "offline":
        yield from _language_models(settings)
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


def _language_models(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key of the setting, model) for each language model that is asked."""
    reports, medground, radvlm = settings.reports, settings.medground, settings.radvlm
    conversations, evaluation = radvlm.conversations, radvlm.evaluation
    converses, has_judge = conversations.engine != RULES, evaluation.judge == "vllm"
    asks_shared = radvlm.filtered.engine in ("vllm", "both") or converses or (has_judge and not evaluation.llm.model)
    for key, model, is_used in (
        ("reports.llm.structuring.model", reports.llm.structuring.model, reports.engine != RULES),
        ("reports.llm.mapping.model", reports.llm.mapping.model, reports.engine != RULES),
        ("paraphrase.llm.model", settings.paraphrase.llm.model, settings.paraphrase.engine != RULES),
        ("medground.queries.llm.model", medground.queries.llm.model, medground.queries.engine == "vllm"),
        ("medground.verification.llm.model", medground.verification.llm.model, medground.verification.judge == "vllm"),
        ("radvlm.llm.model", radvlm.llm.model, asks_shared),
        ("radvlm.conversations.test_llm.model", conversations.test_llm.model, converses),
        ("radvlm.evaluation.llm.model", evaluation.llm.model, has_judge),
        ("radvlm.evaluation.green.model", evaluation.green.model, "green" in evaluation.annotators),
    ):
        if is_used and model:
            yield key, model
