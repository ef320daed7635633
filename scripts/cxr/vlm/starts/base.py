"""The base of RadVLM's small model in this repository (resources/vlm/onevision_tiny, trained by its train.py)."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("vlm/onevision_tiny/model.safetensors", "vlm/onevision_tiny/words.json")
BY_WORD = ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")
"""Tensors with one row per word."""


def load(folder: Path) -> None:
    """Copy the base's weights into a small random model. Raises UserError like :func:`copy_base_weights`."""
    copy_base_weights(folder, *RESOURCE_FILES)


def copy_base_weights(folder: Path, weights: str, words: str) -> None:
    """Copy a base's weights (``weights`` and ``words`` in resources) into a small random model in a folder.

    Rows are matched by word; rows of words that the base does not know stay random. Raises UserError for other sizes.
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
                "keep the defaults of side, sizes and family, or set init to random"
            )
        if name in BY_WORD:
            tensor[model_rows] = base_tensor[base_rows].to(tensor.dtype)
        else:
            tensor.copy_(base_tensor)
    save_file(model, path, metadata={"format": "pt"})
