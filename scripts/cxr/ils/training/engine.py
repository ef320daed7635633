"""The interface of training engines, which make the model that a training starts from, and loading one by name."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of the training stage (section ``training`` of the configuration); own: the recipe of the engine."""

    engine: str
    conversation: str
    max_length: int
    fit: str
    published_mismatch: bool
    validate_every: int
    nan_limit: int
    seed: int
    own: dict = field(default_factory=dict)


class StartModel(Protocol):
    """A model before its training."""

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and its tokenizer into ``folder``; ``texts``: all prompts with answers of the training set.

        Raises UserError for missing or damaged weights, or weights of another shape.
        """
        ...


def load_engine(name: str, options: TrainingOptions, setup: Setup | None = None) -> StartModel:
    """Load an engine: the module ``cxr.ils.training.<name>`` makes one with ``load(options, setup)``."""
    return engine_module("cxr.ils.training", name).load(options, setup or Setup())
