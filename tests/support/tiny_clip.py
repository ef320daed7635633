"""Write a small CLIP model of the true classes, in the files of a published one."""

import json
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

WORDS = ("right", "effusion", "edema")


def write_clip(folder: Path, seed: int = 3) -> CLIPModel:
    """Write the folder; return the model."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    letters = sorted({letter for word in WORDS for letter in word})
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1}
    text = shape | ends | {"vocab_size": len(tokens), "max_position_embeddings": 24}
    vision = shape | {"image_size": 32, "patch_size": 8}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).eval()
    model.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return model
