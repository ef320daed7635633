"""Qwen3-VL. Box coordinates go from 0 to 1000, relative to the image, as its authors defined."""

from collections.abc import Mapping
from pathlib import Path

from transformers import Qwen3VLConfig

from cxr.vlm.families._qwen import TEMPLATE, Qwen, load_qwen, small_processor

__all__ = ["CONVENTION", "MODEL_TYPE", "TEMPLATE", "load", "tiny"]

MODEL_TYPE = "qwen3_vl"
CONVENTION = "grid1000"


def tiny(vocabulary: int, ids: Mapping[str, int], side: int) -> tuple[Qwen3VLConfig, object]:
    """Return a small configuration and an image processor (see :mod:`cxr.vlm.families.engine`)."""
    config = Qwen3VLConfig(
        text_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "head_dim": 32, "vocab_size": vocabulary, "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5]},
            "pad_token_id": ids["pad"], "bos_token_id": ids["end"], "eos_token_id": ids["end"],
        },
        vision_config={
            "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
            "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
        },
        image_token_id=ids["picture"], video_token_id=ids["video"], vision_start_token_id=ids["opening"],
        vision_end_token_id=ids["closing"], tie_word_embeddings=True,
    )  # fmt: skip
    half = [0.5, 0.5, 0.5]
    return config, small_processor(side, patch_size=16, merge_size=2, image_mean=half, image_std=half)


def load(folder: Path) -> Qwen:
    """Return the family object of the model in a folder."""
    return load_qwen(folder)
