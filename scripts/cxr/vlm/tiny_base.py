"""Loading trained weights into RadVLM's small model, from resources/vlm/onevision_tiny."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from cxr.base.paths import RESOURCES
from cxr.vlm.models import add_seg_token, load_model, write_model

FAMILY = "onevision"
RESOURCE_FILES = (
    "vlm/onevision_tiny/model.safetensors", "vlm/onevision_tiny/words.json",
    "vlm/onevision_tiny/masks.safetensors", "vlm/onevision_tiny/masks_words.json",
)  # fmt: skip
"""Weights and vocabularies of the base model, and of the base model that has also learned masks."""
BY_WORD = ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")  # tensors with one row per word


def load_base(folder: Path, with_masks: bool = False) -> None:
    """Replace the weights of the small random model in a folder by trained weights. Token weights are matched by word.
    With ``with_masks``, the trained weights are those of the base model that has also learned masks."""
    if with_masks:
        loaded = add_seg_token(load_model(FAMILY, folder), 0)
        for path in folder.glob("*.safetensors"):
            path.unlink()
        write_model(loaded, FAMILY, folder, published=False)
    weights_path, words_path = (RESOURCES / name for name in (RESOURCE_FILES[2:] if with_masks else RESOURCE_FILES[:2]))
    base_tensors, words = load_file(weights_path), json.loads(words_path.read_text(encoding="utf-8"))
    row_by_word = {word: row for row, word in enumerate(words)}
    id_by_word = AutoTokenizer.from_pretrained(str(folder), local_files_only=True).get_vocab()
    shared_words = sorted(id_by_word.keys() & row_by_word.keys())
    model_rows, base_rows = [id_by_word[word] for word in shared_words], [row_by_word[word] for word in shared_words]
    path = folder / "model.safetensors"
    model = load_file(path)
    for name, tensor in model.items():
        if name in BY_WORD:
            tensor[model_rows] = base_tensors[name][base_rows].to(tensor.dtype)
        else:
            tensor.copy_(base_tensors[name])
    save_file(model, path, metadata={"format": "pt"})
