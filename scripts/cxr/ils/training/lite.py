"""The engine lite: a small model of the same classes, from the base in this repository or random weights."""

from collections.abc import Iterable
from pathlib import Path

from cxr.base.engines import Setup
from cxr.ils.rosalia.lite import extend_base, make_lite
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.training.settings import LiteSizes, TrainingOptions


class LiteStart:
    """Creates the model of ``sizes`` (section ``training.lite.sizes``); ``init``: base or random.

    Its vocabulary is that of the training set and, with ``init`` base, of the base.
    """

    def __init__(self, sizes: LiteSizes, init: str, seed: int):
        self.sizes, self.init, self.seed = sizes, init, seed

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and its tokenizer into ``folder``. Raises UserError if ``sizes`` differ from the base."""
        if self.init == "base":
            model, tokens = extend_base(self.sizes, texts, self.seed)
        else:
            tokens = Tokens.prepare(make_word_tokenizer(texts))
            model = make_lite(self.sizes, tokens, self.seed)
        model.save_pretrained(folder)
        tokens.save(folder)


def load(options: TrainingOptions, setup: Setup) -> LiteStart:
    """Return the engine."""
    del setup
    return LiteStart(options.lite.model_sizes, options.lite.init, options.seed)
