"""The base of ROSALIA lite in this repository (resources/rosalia, made by its train.py), and what begins from it."""

from collections.abc import Iterable

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.ils.rosalia.config import read_config
from cxr.ils.rosalia.lite import Sizes, make_lite, read_sizes
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.nets.weight_files import WeightFiles

RESOURCE_FILES = ("rosalia/model.safetensors", "rosalia/config.json", "rosalia/tokenizer.json",
                  "rosalia/tokenizer_config.json")  # fmt: skip
FOLDER = RESOURCES / "rosalia"
TENSORS_BY_TOKEN = ("llava.model.language_model.embed_tokens.weight", "llava.lm_head.weight")
"""Tensors with a row for each token."""


def load_base() -> tuple[Rosalia, Tokens]:
    """Return the base, float32, and its tokenizer."""
    return Rosalia.from_pretrained(FOLDER), Tokens.load(FOLDER)


def extend_base(sizes: Sizes, texts: Iterable[str], seed: int) -> tuple[Rosalia, Tokens]:
    """Return the base, float32, with a tokenizer that knows the words of the texts too.

    What it learnt of a word goes with the word; rows of new words begin at random, and depend on the seed.
    Raises UserError for sizes that are not the base's.
    """
    base_sizes = vars(read_sizes(read_config(FOLDER)))
    for name, value in base_sizes.items():
        if getattr(sizes, name) != value:
            raise UserError(
                f"training.lite.sizes.{name} is {getattr(sizes, name)}, but the base in resources/rosalia has {value}: "
                "leave it so, or set training.lite.init to random"
            )
    base_vocabulary = Tokens.load(FOLDER).tokenizer.get_vocab()
    tokens = Tokens.prepare(make_word_tokenizer(texts, base_vocabulary))
    model = make_lite(sizes, tokens, seed)
    rows = tokens.tokenizer.convert_tokens_to_ids(list(base_vocabulary))
    state = model.state_dict()
    with WeightFiles(FOLDER) as weights:
        for name, tensor in state.items():
            if name in TENSORS_BY_TOKEN:
                tensor[rows] = weights.get(name)[list(base_vocabulary.values())].float()
            else:
                tensor.copy_(weights.get(name))
    return model, tokens
