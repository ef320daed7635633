"""The base of RadVLM's small model in this repository (resources/vlm/onevision_tiny, made by its train.py)."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("vlm/onevision_tiny/model.safetensors", "vlm/onevision_tiny/words.json")
BY_WORD = ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")
"""Tensors with a row for each word."""


def load(folder: Path) -> None:
    """Give a small random model in a folder the base's weights. Raises UserError as :func:`give`."""
    give(folder, *RESOURCE_FILES)


def give(folder: Path, weights: str, words: str) -> None:
    """Give a small random model in a folder the weights of a base: two files in resources.

    What the base learnt of a word goes with the word; rows of words that it does not know stay random. Raises UserError
    for a model of other sizes.
    """
    base_tensors, words = load_file(RESOURCES / weights), json.loads((RESOURCES / words).read_text(encoding="utf-8"))
    row_by_word = {word: row for row, word in enumerate(words)}
    id_by_word = AutoTokenizer.from_pretrained(str(folder), local_files_only=True).get_vocab()
    shared_words = sorted(id_by_word.keys() & row_by_word.keys())
    model_rows, base_rows = [id_by_word[word] for word in shared_words], [row_by_word[word] for word in shared_words]
    path = folder / "model.safetensors"
    model = load_file(path)
    for name, tensor in model.items():
        base_tensor = base_tensors.get(name)
        first = 1 if name in BY_WORD else 0
        if base_tensor is None or base_tensor.shape[first:] != tensor.shape[first:]:
            raise UserError(
                f"vlm.tuning.onevision_tiny: the base in resources/vlm/onevision_tiny does not fit the model ({name}): "
                "leave side, sizes and family as they are, or set init to random"
            )
        if name in BY_WORD:
            tensor[model_rows] = base_tensor[base_rows].to(tensor.dtype)
        else:
            tensor.copy_(base_tensor)
    save_file(model, path, metadata={"format": "pt"})
