"""Qwen2.5-VL and models of its architecture (Lingshu). Boxes are in pixels of the resized image."""

from collections.abc import Mapping
from pathlib import Path

from transformers import Qwen2_5_VLConfig

from cxr.vlm.families._qwen import TEMPLATE, Qwen, load_qwen, small_processor

__all__ = ["CONVENTION", "MODEL_TYPE", "TEMPLATE", "load", "tiny"]

MODEL_TYPE = "qwen2_5_vl"
CONVENTION = "pixels_resized"


def tiny(vocabulary: int, ids: Mapping[str, int], side: int) -> tuple[Qwen2_5_VLConfig, object]:
    """Return a small configuration and its image processor. On a CPU, vLLM needs a head size of at least 32."""
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "vocab_size": vocabulary, "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "pad_token_id": ids["pad"], "bos_token_id": ids["end"], "eos_token_id": ids["end"],
            "use_sliding_window": False,
        },
        vision_config={
            "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
            "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1],
        },
        image_token_id=ids["picture"], video_token_id=ids["video"], vision_start_token_id=ids["opening"],
        vision_end_token_id=ids["closing"], tie_word_embeddings=True,
    )  # fmt: skip
    return config, small_processor(side, patch_size=14, merge_size=2)


def load(folder: Path) -> Qwen:
    """Return the family object of the model in a folder."""
    return load_qwen(folder)
