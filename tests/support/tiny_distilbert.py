"""A DistilBERT of random weights in the published layout: config.json, model.safetensors, a vocabulary."""

import json
from pathlib import Path

import torch
from transformers import DistilBertConfig, DistilBertModel

from tiny_chexbert import WORDS


def save(folder: Path) -> Path:
    """Write the model and its tokenizer."""
    torch.manual_seed(5)
    sizes = {"dim": 16, "n_layers": 6, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 24}
    net = DistilBertModel(DistilBertConfig(vocab_size=len(WORDS), **sizes))
    with torch.no_grad():
        for value in net.parameters():
            value += 0.3 * torch.randn_like(value)
    net.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    told = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 24}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
