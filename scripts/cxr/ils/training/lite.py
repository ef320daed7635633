"""The engine lite: a small model of the same classes, from the base in this repository or random weights."""

from collections.abc import Callable, Iterable
from pathlib import Path

from cxr.base.engines import Setup
from cxr.ils.rosalia.lite import extend_base, make_lite
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.training.settings import TrainingOptions


def load(options: TrainingOptions, setup: Setup) -> Callable[[Path, Iterable[str]], None]:
    """Return a function that writes the model to start from, and its tokenizer, into a folder.

    It also takes all prompts with answers of the training set: the vocabulary is theirs and, with ``init`` base, the
    base's.
    """
    del setup
    sizes, seed = options.lite.model_sizes, options.seed

    def make(folder: Path, texts: Iterable[str]) -> None:
        if options.lite.init == "base":
            model, tokens = extend_base(sizes, texts, seed)
        else:
            tokens = Tokens.prepare(make_word_tokenizer(texts))
            model = make_lite(sizes, tokens, seed)
        model.save_pretrained(folder)
        tokens.save(folder)

    return make
