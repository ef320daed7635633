"""The engine ``lite``, a small ROSALIA that starts from the model in resources/rosalia or from random weights."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cxr.ils.rosalia.lite import extend_base, make_lite
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.training.settings import TrainingOptions


def load(options: TrainingOptions, files: Mapping, folder: Path, texts: Iterable[str]) -> None:
    """Write the initial model, and a tokenizer with all words of ``texts`` (prompts with answers), into a folder."""
    del files
    sizes, seed = options.lite.model_sizes, options.seed
    if options.lite.init == "base":
        model, tokens = extend_base(sizes, texts, seed)
    else:
        tokens = Tokens.prepare(make_word_tokenizer(texts))
        model = make_lite(sizes, tokens, seed)
    model.save_pretrained(folder)
    tokens.save(folder)
