"""LLaVA-OneVision and RadVLM. The model sees an image as a whole and in tiles. Boxes are fractions of its sides."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, LlavaOnevisionConfig
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

from cxr.base.errors import UserError
from cxr.vlm.conventions import InputSize
from cxr.vlm.families import _qwen
from cxr.vlm.families.engine import EncodedImages

MODEL_TYPE = "llava_onevision"
CONVENTION = "unit"
SYSTEM = "You are a helpful assistant."
TEMPLATE = replace(_qwen.TEMPLATE, opening="", picture="<image>", closing="\n", system=SYSTEM)
PREFIXES = {
    "vision": ("model.vision_tower.",),
    "projector": ("model.multi_modal_projector.", "model.image_newline"),
    "language": ("model.language_model.", "lm_head."),
}
REUSES_KV_CACHE = True  # the KV cache can be reused across turns, because positions are computed from the mask alone
IDLE = ("model.vision_tower.post_layernorm.",)  # features are taken before this norm, so no answer depends on it
TOWER, PUBLISHED_TOWER = "vision_tower.", "vision_tower.vision_model."  # prefixes: in the library, as published
PATCH, HEAD_SIZE = 16, 32  # patch and head sizes of the tiny model; vLLM on a CPU needs heads of at least 32
HIDDEN, LAYERS, VISION_HIDDEN, VISION_LAYERS = 96, 3, 64, 2  # widths and depths of the tiny model
INITIALIZER_RANGE = 0.1
"""Standard deviation of the tiny model's initial weights, about 1 / sqrt(width). The library's default is 0.02."""
SHRINK_RATIO = 1.1  # factor per side by which features may exceed the maximum number of tiles before they are shrunk
TILES_PREFIX = "anyres_max_"  # prefix of ``vision_aspect_ratio``, before the maximum number of tiles
VLLM_TILES = "anyres_max_9"  # the ``vision_aspect_ratio`` that vLLM (0.32) uses for every model
VLLM_ADAPTERS = False  # vLLM (0.32) has no adapters for this architecture
RATIO, PINPOINTS = "vision_aspect_ratio", "image_grid_pinpoints"
TILING_KEYS = {
    "config.json": (RATIO, PINPOINTS),
    "preprocessor_config.json": (PINPOINTS,),
    "processor_config.json": (RATIO,),
}
"""{file of a model: keys in it that set the tiling}."""


@dataclass(frozen=True)
class Tiling:
    """How an image is cut into tiles. ``pinpoints`` are the allowed canvas sizes (height, width), px.

    ``side`` is the side of a tile in px, ``cells`` is the number of features along that side, and ``most`` is the
    maximum number of tiles.
    """

    pinpoints: Sequence[Sequence[int]]
    side: int
    cells: int
    most: int

    def with_limits(self, tiles: str, grid: int) -> "Tiling":
        """Return the tiling with at most ``grid`` tiles per side. ``tiles`` limits their total: "anyres_max_9" to 9."""
        return replace(self, pinpoints=canvases(grid, self.side), most=int(tiles.removeprefix(TILES_PREFIX)))

    def canvas(self, height: int, width: int) -> tuple[int, int]:
        """Return the size (height, width), px, of the canvas on which an image is placed."""
        rows, columns = select_best_resolution((height, width), list(self.pinpoints))
        return int(rows), int(columns)

    def visible_size(self, height: int, width: int) -> InputSize:
        """Return the size to which an image is scaled on its canvas, without the padding around it."""
        rows, columns = self.canvas(height, width)
        scale = min(rows / height, columns / width)
        return InputSize(min(math.ceil(width * scale), columns), min(math.ceil(height * scale), rows))

    def features(self, height: int, width: int) -> int:
        """Return an image's number of tokens: the whole image, the unpadded tiles, and one for each row's end."""
        rows, columns = (edge // self.side * self.cells for edge in self.canvas(height, width))
        if width / height > columns / rows:
            rows -= 2 * ((rows - int(round(height * (columns / width), 7))) // 2)
        else:
            columns -= 2 * ((columns - int(round(width * (rows / height), 7))) // 2)
        ratio = math.sqrt(rows * columns / (self.most * self.cells**2))
        if ratio > SHRINK_RATIO:
            rows, columns = int(rows // ratio), int(columns // ratio)
        return self.cells**2 + rows * (columns + 1)


@dataclass(frozen=True)
class OneVision:
    """A LLaVA-OneVision model. ``processor`` is the PIL version of its processor, which does not need torchvision."""

    processor: LlavaOnevisionImageProcessorPil
    tiling: Tiling
    frame = TEMPLATE
    prefixes = PREFIXES
    idle = IDLE

    @property
    def tiles(self) -> str:
        """The model's ``vision_aspect_ratio``."""
        return f"{TILES_PREFIX}{self.tiling.most}"

    def pictures(self, pictures: Sequence[np.ndarray]) -> EncodedImages:
        """Encode images, uint8 (H, W, 3), in order. Each image is encoded as a whole, then in tiles."""
        features = [self.processor([Image.fromarray(picture)], return_tensors="pt") for picture in pictures]
        sizes = [picture.shape[:2] for picture in pictures]
        tensors = {
            "pixel_values": torch.cat([picture_features["pixel_values"][0] for picture_features in features]),
            "image_sizes": torch.tensor(sizes),
        }
        tokens = tuple(self.tiling.features(*size) for size in sizes)
        return EncodedImages(tensors, tokens, tuple(self.tiling.visible_size(*size) for size in sizes))

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return {}, because the model needs no further inputs."""
        del ids, picture_id
        return {}


def canvases(grid: int, side: int) -> list[list[int]]:
    """Return the sizes (height, width), px, of all canvases with at most ``grid`` tiles of ``side`` px per side."""
    return [[rows * side, columns * side] for rows in range(1, grid + 1) for columns in range(1, grid + 1)]


def has_tiling(folder: Path, tiles: str, grid: int) -> bool:
    """Return whether a model's ``vision_aspect_ratio`` is ``tiles`` and its maximum of tiles per side is ``grid``."""
    tiling = load(folder).tiling
    return tiling == tiling.with_limits(tiles, grid)


def write_tiling(folder: Path, tiles: str, grid: int) -> None:
    """Change the ``vision_aspect_ratio`` to ``tiles`` and the maximum tiles per side to ``grid`` in a model's files."""
    tiling_values = {RATIO: tiles, PINPOINTS: load(folder).tiling.with_limits(tiles, grid).pinpoints}
    for name, keys in TILING_KEYS.items():
        path = folder / name
        if path.is_file():
            config = json.loads(path.read_text(encoding="utf-8")) | {key: tiling_values[key] for key in keys}
            if "image_processor" in config:  # processor_config.json may contain it
                config["image_processor"] |= {PINPOINTS: tiling_values[PINPOINTS]}
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def published_name(name: str) -> str:
    """Return a tensor's name in the published checkpoints, from its name in a file written by the library."""
    if name.startswith(TOWER) and not name.startswith(PUBLISHED_TOWER):
        return PUBLISHED_TOWER + name.removeprefix(TOWER)
    return name


def processor_config(config: LlavaOnevisionConfig) -> dict:
    """Return the content of processor_config.json, which the library's processor (used by vLLM) needs."""
    vision = config.vision_config
    return {
        "processor_class": "LlavaOnevisionProcessor",
        "num_image_tokens": (vision.image_size // vision.patch_size) ** 2,
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
        "vision_aspect_ratio": config.vision_aspect_ratio,
    }


def tiny(vocabulary: int, ids: Mapping[str, int], side: int) -> tuple[LlavaOnevisionConfig, object]:
    """Return a small configuration, whose tiles are half of ``side`` wide (at least two patches), and its processor."""
    tile = max(2 * PATCH, side // 2 // PATCH * PATCH)
    pinpoints = canvases(2, tile)
    config = LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2", "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HIDDEN // HEAD_SIZE, "num_key_value_heads": HIDDEN // HEAD_SIZE,
            "vocab_size": vocabulary, "max_position_embeddings": 4096, "pad_token_id": ids["pad"],
            "bos_token_id": ids["end"], "eos_token_id": ids["end"], "use_sliding_window": False,
            "initializer_range": INITIALIZER_RANGE,
        },
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": VISION_HIDDEN, "intermediate_size": 2 * VISION_HIDDEN,
            "num_hidden_layers": VISION_LAYERS, "num_attention_heads": VISION_HIDDEN // HEAD_SIZE, "image_size": tile,
            "patch_size": PATCH, "vision_use_head": False,
        },
        image_token_index=ids["picture"], video_token_index=ids["video"], image_grid_pinpoints=pinpoints,
        vision_feature_layer=-1, vision_feature_select_strategy="full", vision_aspect_ratio=f"{TILES_PREFIX}9",
    )  # fmt: skip
    return config, LlavaOnevisionImageProcessorPil(size={"height": tile, "width": tile}, image_grid_pinpoints=pinpoints)


def load(folder: Path) -> OneVision:
    """Return the family object of the model in a folder. Raises UserError if its processor has other canvas sizes."""
    processor = LlavaOnevisionImageProcessorPil.from_pretrained(folder, local_files_only=True)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    vision, pinpoints = config.vision_config, [list(map(int, pinpoint)) for pinpoint in config.image_grid_pinpoints]
    if [list(map(int, pinpoint)) for pinpoint in processor.image_grid_pinpoints] != pinpoints:
        raise UserError(f"{folder}: image_grid_pinpoints of model and processor differ: download the whole model")
    most = int(config.vision_aspect_ratio.removeprefix(TILES_PREFIX))
    return OneVision(processor, Tiling(pinpoints, vision.image_size, vision.image_size // vision.patch_size, most))
