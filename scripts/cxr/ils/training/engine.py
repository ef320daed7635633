"""Interface of training engines, which create the model that a training starts from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of the training stage (section ``training``); ``own``: the recipe of the engine."""

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
    """Creates the model that a training starts from."""

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and its tokenizer into ``folder``; ``texts``: all prompts with answers of the training set.

        Raises UserError for missing or damaged weights, or weights of another shape.
        """
        ...


def load_engine(name: str, options: TrainingOptions, setup: Setup | None = None) -> StartModel:
    """Return the engine of the module ``cxr.ils.training.<name>``, made by its ``load(options, setup)``."""
    return engine_module("cxr.ils.training", name).load(options, setup or Setup())
