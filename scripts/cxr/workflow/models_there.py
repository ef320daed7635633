"""Models that jobs load: each is a name on the Hugging Face hub, or a folder, which must be there before any job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cxr.base.errors import existing_folder
from cxr.workflow.settings import Settings

RULES = "rules"


def check_models(settings: Settings) -> None:
    """Raise UserError for a model of a chosen engine that is named by a path where no folder is."""
    for key, model in _loaded(settings):
        if is_path(model):
            existing_folder(key, model)


def is_path(model: str) -> bool:
    """Tell whether a setting names a model by a path, and not by a name on the hub.

    A path begins as one, has more parts than such a name, or its first part is a folder that is here.
    """
    first, slash, remainder = model.partition("/")
    return model.startswith((".", "/", "~")) or "/" in remainder or (bool(slash) and Path(first).is_dir())


def _loaded(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, model) of what jobs load."""
    for section, is_asked, models in _asked(settings):
        if is_asked and section.transport == "offline":
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


def _asked(settings: Settings) -> Iterator[tuple[Any, bool, dict[str, str]]]:
    """Yield, of each section of a language model: the section, whether it is asked, and {key: model}."""
    reports, paraphrase, medground, radvlm = settings.reports, settings.paraphrase, settings.medground, settings.radvlm
    parts = {f"reports.llm.{name}.model": getattr(reports.llm, name).model for name in ("structuring", "mapping")}
    yield reports.llm, reports.engine != RULES, parts
    yield paraphrase.llm, paraphrase.engine != RULES, {"paraphrase.llm.model": paraphrase.llm.model}
    for name, choice in (("queries", medground.queries.engine), ("verification", medground.verification.judge)):
        llm = getattr(medground, name).llm
        yield llm, choice == "vllm", {f"medground.{name}.llm.model": llm.model}
    filtered, conversations, evaluation = radvlm.filtered, radvlm.conversations, radvlm.evaluation
    filtered_models = {"radvlm.filtered.llm.model": filtered.llm.model}
    yield filtered.llm, filtered.engine in ("vllm", "both"), filtered_models
    model_by_key = {name: getattr(conversations.llm, name) for name in ("train_model", "test_model")}
    conversation_models = {f"radvlm.conversations.llm.{name}": model for name, model in model_by_key.items() if model}
    yield (
        conversations.llm,
        conversations.engine != RULES,
        conversation_models if all(model_by_key.values()) else conversation_models | filtered_models,
    )
    yield evaluation.llm, evaluation.judge == "vllm", {"radvlm.evaluation.llm.model": evaluation.llm.model}
    yield evaluation.green, "green" in evaluation.annotators, {"radvlm.evaluation.green.model": evaluation.green.model}
