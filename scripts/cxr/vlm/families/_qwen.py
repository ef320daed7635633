"""What the two Qwen families share: the chat, and pictures as patches in their own proportions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from cxr.vlm.conventions import Seen
from cxr.vlm.families.engine import Frame, Pictures

FRAME = Frame(
    start="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n",
    user="<|im_start|>user\n",
    opening="<|vision_start|>",
    picture="<|image_pad|>",
    closing="<|vision_end|>",
    assistant="<|im_end|>\n<|im_start|>assistant\n",
    end="<|im_end|>",
    between="\n",
)


PREFIXES = {
    "vision": ("model.visual.",),
    "projector": ("model.visual.merger.", "model.visual.deepstack_merger_list."),
    "language": ("model.language_model.", "lm_head."),
}


@dataclass(frozen=True)
class Qwen:
    """A Qwen model. ``processor``: its own picture processor, of PIL, for torchvision need not be there."""

    processor: Qwen2VLImageProcessorPil
    convention: str
    frame: Frame = FRAME
    prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PREFIXES)

    def pictures(self, pictures: Sequence[np.ndarray]) -> Pictures:
        """Encode pictures, uint8 (H, W, 3); each keeps its proportions, its sides become multiples of a patch."""
        features = self.processor([Image.fromarray(picture) for picture in pictures], return_tensors="pt")
        grid, patch, merge = features["image_grid_thw"], self.processor.patch_size, self.processor.merge_size
        tokens = tuple(int(count) // merge**2 for count in grid.prod(dim=1))
        sizes = tuple(Seen(int(columns) * patch, int(rows) * patch) for _, rows, columns in grid)
        return Pictures({"pixel_values": features["pixel_values"], "image_grid_thw": grid}, tokens, sizes)

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return ``mm_token_type_ids`` (N, L), from which the model makes positions in two dimensions."""
        return {"mm_token_type_ids": (ids == picture_id).int()}


def read(folder: Path, convention: str) -> Qwen:
    """Return the family of the model in a folder, with its own processor."""
    return Qwen(Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True), convention)


def small(side: int, **more: object) -> Qwen2VLImageProcessorPil:
    """Return a processor for pictures of about ``side`` px."""
    return Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": side * side}, **more)
