"""LLaVA-OneVision (RadVLM): a picture as a whole and in tiles, boxes as fractions of its width and height."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, LlavaOnevisionConfig
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

from cxr.base.errors import UserError
from cxr.vlm.conventions import Seen
from cxr.vlm.families.engine import Frame, Pictures

MODEL_TYPE = "llava_onevision"
CONVENTION = "unit"
SYSTEM = "You are a helpful assistant."
FRAME = Frame(
    start=f"<|im_start|>system\n{SYSTEM}<|im_end|>\n",
    user="<|im_start|>user\n",
    opening="",
    picture="<image>",
    closing="\n",
    assistant="<|im_end|>\n<|im_start|>assistant\n",
    end="<|im_end|>",
    between="\n",
    system=SYSTEM,
)
PREFIXES = {
    "vision": ("model.vision_tower.",),
    "projector": ("model.multi_modal_projector.", "model.image_newline"),
    "language": ("model.language_model.", "lm_head."),
}
GOES_ON = True
"""Whether keys and values can be kept over the rounds of a conversation: positions are counted from the mask alone."""
IDLE = ("model.vision_tower.post_layernorm.",)
"""Features are taken before this norm, so that no answer depends on it."""
TOWER, PUBLISHED_TOWER = "vision_tower.", "vision_tower.vision_model."
"""Beginnings of the tower's tensors' names in a file, as the library writes them and as the makers' checkpoints do."""
SIZES = ("patch", "hidden", "layers", "vision_hidden", "vision_layers", "head_size")
"""Sizes of the tiny model that settings give: the side of a patch, px; width and layers of its language model and of
its tower; the width of a head in both.
"""
SPREAD = 0.1
"""Standard deviation of the tiny model's first weights: about 1 over the root of its width, as the library's own, 0.02,
is for models of some 2,500.
"""
SHRUNK = 1.1
"""A picture whose side has more features than the greatest number of tiles, by this factor, is shrunk to it."""
TILES = "anyres_max_"
"""What ``vision_aspect_ratio`` says before the greatest number of tiles whose features a picture has."""
VLLM_TILES = "anyres_max_9"
"""What vLLM takes for it, whatever a model's configuration says (0.32)."""
VLLM_ADAPTERS = False
"""vLLM has no adapters for this architecture (0.32)."""
RATIO, PINPOINTS = "vision_aspect_ratio", "image_grid_pinpoints"
SAID_IN = {
    "config.json": (RATIO, PINPOINTS),
    "preprocessor_config.json": (PINPOINTS,),
    "processor_config.json": (RATIO,),
}
"""{file of a model: what it says of tiles}."""


@dataclass(frozen=True)
class Tiling:
    """How a picture is cut. pinpoints: sizes (height, width) of the canvas that it may fill; side: of a tile, px;
    cells: features along a tile's side; most: tiles whose features a picture may have.
    """

    pinpoints: Sequence[Sequence[int]]
    side: int
    cells: int
    most: int

    def told(self, tiles: str, grid: int) -> "Tiling":
        """Return this with the greatest number of tiles that ``tiles`` says, on canvases of ``grid`` a side at most."""
        return replace(self, pinpoints=canvases(grid, self.side), most=int(tiles.removeprefix(TILES)))

    def canvas(self, height: int, width: int) -> tuple[int, int]:
        """Return the canvas (height, width), px, of a picture (height, width)."""
        rows, columns = select_best_resolution((height, width), list(self.pinpoints))
        return int(rows), int(columns)

    def seen(self, height: int, width: int) -> Seen:
        """Return the size of a picture on its canvas, without padding."""
        rows, columns = self.canvas(height, width)
        scale = min(rows / height, columns / width)
        return Seen(min(math.ceil(width * scale), columns), min(math.ceil(height * scale), rows))

    def features(self, height: int, width: int) -> int:
        """Return the number of features, and so of tokens, of a picture: of the whole, of its tiles without padding,
        and one at the end of each of their rows.
        """
        rows, columns = (edge // self.side * self.cells for edge in self.canvas(height, width))
        if width / height > columns / rows:
            rows -= 2 * ((rows - int(round(height * (columns / width), 7))) // 2)
        else:
            columns -= 2 * ((columns - int(round(width * (rows / height), 7))) // 2)
        ratio = math.sqrt(rows * columns / (self.most * self.cells**2))
        if ratio > SHRUNK:
            rows, columns = int(rows // ratio), int(columns // ratio)
        return self.cells**2 + rows * (columns + 1)


@dataclass(frozen=True)
class OneVision:
    """A LLaVA-OneVision model. ``processor``: the one of PIL, for torchvision need not be there."""

    processor: LlavaOnevisionImageProcessorPil
    tiling: Tiling
    convention: str = CONVENTION
    frame: Frame = FRAME
    prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PREFIXES)
    idle: tuple[str, ...] = IDLE

    @property
    def tiles(self) -> str:
        """The model's ``vision_aspect_ratio``."""
        return f"{TILES}{self.tiling.most}"

    def pictures(self, pictures: Sequence[np.ndarray]) -> Pictures:
        """Encode pictures, uint8 (H, W, 3), as tiles: those of all pictures after one another, the whole one first."""
        features = [self.processor([Image.fromarray(picture)], return_tensors="pt") for picture in pictures]
        sizes = [picture.shape[:2] for picture in pictures]
        tensors = {
            "pixel_values": torch.cat([picture_features["pixel_values"][0] for picture_features in features]),
            "image_sizes": torch.tensor(sizes),
        }
        tokens = tuple(self.tiling.features(*size) for size in sizes)
        return Pictures(tensors, tokens, tuple(self.tiling.seen(*size) for size in sizes))

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return nothing: ids and pictures are enough."""
        del ids, picture_id
        return {}


def canvases(grid: int, side: int) -> list[list[int]]:
    """Return the sizes (height, width), px, of all canvases of at most ``grid`` tiles a side; ``side``: of a tile."""
    return [[rows * side, columns * side] for rows in range(1, grid + 1) for columns in range(1, grid + 1)]


def cuts(folder: Path, tiles: str, grid: int) -> bool:
    """Return whether a model cuts pictures so: ``tiles`` its ``vision_aspect_ratio``, ``grid`` tiles a side at most."""
    tiling = load(folder).tiling
    return tiling == tiling.told(tiles, grid)


def recut(folder: Path, tiles: str, grid: int) -> None:
    """Write into a model's files that it cuts pictures so, as :func:`cuts` asks."""
    tiling_values = {RATIO: tiles, PINPOINTS: load(folder).tiling.told(tiles, grid).pinpoints}
    for name, keys in SAID_IN.items():
        path = folder / name
        if path.is_file():
            config = json.loads(path.read_text(encoding="utf-8")) | {key: tiling_values[key] for key in keys}
            if "image_processor" in config:  # a processor in one file
                config["image_processor"] |= {PINPOINTS: tiling_values[PINPOINTS]}
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def published(name: str) -> str:
    """Return the name that the makers' checkpoints give a tensor of a file that the library wrote."""
    if name.startswith(TOWER) and not name.startswith(PUBLISHED_TOWER):
        return PUBLISHED_TOWER + name.removeprefix(TOWER)
    return name


def processor_config(config: LlavaOnevisionConfig) -> dict:
    """Return what the file processor_config.json holds: the library's own processor, which vLLM uses, counts by it."""
    vision = config.vision_config
    return {
        "processor_class": "LlavaOnevisionProcessor",
        "num_image_tokens": (vision.image_size // vision.patch_size) ** 2,
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
        "vision_aspect_ratio": config.vision_aspect_ratio,
    }


def tiny(
    vocabulary: int, ids: Mapping[str, int], side: int, *, patch: int, hidden: int, layers: int, vision_hidden: int,
    vision_layers: int, head_size: int,
) -> tuple[LlavaOnevisionConfig, object]:  # fmt: skip
    """Return a small configuration of tiles of half of ``side``, two patches at least, and its picture processor."""
    tile = max(2 * patch, side // 2 // patch * patch)
    pinpoints = canvases(2, tile)
    config = LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
            "num_attention_heads": hidden // head_size, "num_key_value_heads": hidden // head_size,
            "vocab_size": vocabulary, "max_position_embeddings": 4096, "pad_token_id": ids["pad"],
            "bos_token_id": ids["end"], "eos_token_id": ids["end"], "use_sliding_window": False,
            "initializer_range": SPREAD,
        },
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": vision_hidden, "intermediate_size": 2 * vision_hidden,
            "num_hidden_layers": vision_layers, "num_attention_heads": vision_hidden // head_size, "image_size": tile,
            "patch_size": patch, "vision_use_head": False,
        },
        image_token_index=ids["picture"], video_token_index=ids["video"], image_grid_pinpoints=pinpoints,
        vision_feature_layer=-1, vision_feature_select_strategy="full", vision_aspect_ratio=f"{TILES}9",
    )  # fmt: skip
    return config, LlavaOnevisionImageProcessorPil(size={"height": tile, "width": tile}, image_grid_pinpoints=pinpoints)


def load(folder: Path) -> OneVision:
    """Return the family. Raises UserError where the model's canvases are not those of its processor."""
    processor = LlavaOnevisionImageProcessorPil.from_pretrained(folder, local_files_only=True)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    vision, pinpoints = config.vision_config, [list(map(int, pinpoint)) for pinpoint in config.image_grid_pinpoints]
    if [list(map(int, pinpoint)) for pinpoint in processor.image_grid_pinpoints] != pinpoints:
        raise UserError(f"{folder}: image_grid_pinpoints of its processor and model differ: fetch the whole model")
    most = int(config.vision_aspect_ratio.removeprefix(TILES))
    return OneVision(processor, Tiling(pinpoints, vision.image_size, vision.image_size // vision.patch_size, most))
