"""CheXbert of random weights in the published layout: a pickled state dict of a net that DataParallel wrapped."""

import json
from pathlib import Path

import torch

WORDS = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "heart", "is", "enlarged", "no", "effusion", "lungs", "are",
    "clear", "left", "right", "small", "opacity", "pneumonia", "cannot", "be", "excluded", ".", ",", "a", "##s",
    "chest", "tube",
)  # fmt: skip
SIZES = {
    "vocab_size": len(WORDS), "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "hidden_act": "gelu", "model_type": "bert", "pad_token_id": 0,
}  # fmt: skip
SCALES = {"LayerNorm.bias": 0.05, "attention.output.dense.weight": 4.0, "linear_heads": 3.0}
"""What some tensors are multiplied by, so that texts differ in their labels."""


def words(folder: Path) -> Path:
    """Write the configuration and the vocabulary of the BERT."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SIZES))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 24})
    )
    return folder


def state(seed: int = 3) -> dict[str, torch.Tensor]:
    """Return tensors under the names of the published file, without its prefix."""
    draw = torch.Generator().manual_seed(seed)
    wide, deep = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes = {
        "bert.embeddings.word_embeddings.weight": (len(WORDS), wide),
        "bert.embeddings.position_embeddings.weight": (SIZES["max_position_embeddings"], wide),
        "bert.embeddings.token_type_embeddings.weight": (2, wide),
        "bert.embeddings.LayerNorm.weight": (wide,), "bert.embeddings.LayerNorm.bias": (wide,),
        "bert.pooler.dense.weight": (wide, wide), "bert.pooler.dense.bias": (wide,),
    }  # fmt: skip
    for layer in range(SIZES["num_hidden_layers"]):
        at = f"bert.encoder.layer.{layer}"
        for name, size in (
            ("attention.self.query", (wide, wide)), ("attention.self.key", (wide, wide)),
            ("attention.self.value", (wide, wide)), ("attention.output.dense", (wide, wide)),
            ("attention.output.LayerNorm", (wide,)), ("intermediate.dense", (deep, wide)),
            ("output.dense", (wide, deep)), ("output.LayerNorm", (wide,)),
        ):  # fmt: skip
            shapes |= {f"{at}.{name}.weight": size, f"{at}.{name}.bias": size[:1]}
    for head in range(14):
        classes = 2 if head == 13 else 4
        shapes |= {f"linear_heads.{head}.weight": (classes, wide), f"linear_heads.{head}.bias": (classes,)}
    return {
        name: torch.randn(size, generator=draw) * next((by for part, by in SCALES.items() if part in name), 1.0)
        for name, size in shapes.items()
    }


def save(path: Path, held: dict[str, torch.Tensor]) -> Path:
    """Write the file as published: below model_state_dict, each name after ``module.``, and what old copies hold."""
    named = {f"module.{name}": value for name, value in held.items()}
    named["module.bert.embeddings.position_ids"] = torch.arange(24)[None]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"epoch": 7, "model_state_dict": named}, path)
    return path
