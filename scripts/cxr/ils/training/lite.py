"""The engine lite: a small model of the same classes with random initial weights."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from cxr.base.engines import Setup
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.tokens import Tokens, word_tokenizer
from cxr.ils.training.engine import TrainingOptions


class Lite:
    """Makes the model of ``sizes`` (section ``training.lite.sizes``); its vocabulary is that of the training set."""

    def __init__(self, sizes: dict, seed: int):
        self.sizes, self.seed = SimpleNamespace(**sizes), seed

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and its tokenizer into ``folder``."""
        tokens = Tokens.prepare(word_tokenizer(texts))
        make_lite(self.sizes, tokens, self.seed).save_pretrained(folder)
        tokens.save(folder)


def load(options: TrainingOptions, setup: Setup) -> Lite:
    """Return the engine."""
    return Lite(setup.own["sizes"], options.seed)
