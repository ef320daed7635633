"""Interface of training engines, which create the model that a training starts from."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module
from cxr.ils.training.settings import TrainingOptions


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
