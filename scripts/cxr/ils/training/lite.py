"""The engine lite: a small model of the same classes, from its base in this repository or from random weights."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from cxr.base.engines import Setup
from cxr.ils.rosalia.base import extend_base
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.training.engine import TrainingOptions


class LiteStart:
    """Makes the model of ``sizes`` (section ``training.lite.sizes``); ``init``: base or random.

    Its words are those of the training set, and of the base.
    """

    def __init__(self, sizes: dict, init: str, seed: int):
        self.sizes, self.init, self.seed = SimpleNamespace(**sizes), init, seed

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and its tokenizer into ``folder``. Raises UserError for sizes that the base has not."""
        if self.init == "base":
            model, tokens = extend_base(self.sizes, texts, self.seed)
        else:
            tokens = Tokens.prepare(make_word_tokenizer(texts))
            model = make_lite(self.sizes, tokens, self.seed)
        model.save_pretrained(folder)
        tokens.save(folder)


def load(options: TrainingOptions, setup: Setup) -> LiteStart:
    """Return the engine."""
    return LiteStart(setup.own["sizes"], setup.own["init"], options.seed)
