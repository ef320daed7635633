"""Configuration of the model (the sizes of LLaVA and SAM), and its file config.json."""

import json
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from transformers import CLIPVisionConfig, LlavaConfig, SamConfig

from cxr.base.errors import UserError, refuse_unreadable
from cxr.nets.weight_files import write_json

CONFIG = "config.json"


@dataclass(frozen=True)
class RosaliaConfig:
    """Sizes of LLaVA and SAM, and the id of the token [SEG]."""

    llava: LlavaConfig
    sam: SamConfig
    seg_id: int

    @property
    def image_id(self) -> int:
        """Id of the image token, which the input has once per image feature. The embedding has no row for it."""
        return self.llava.image_token_index

    @property
    def eos_id(self) -> int:
        """Id of the token that ends an answer."""
        return self.llava.text_config.eos_token_id


CLIP_L14 = CLIPVisionConfig(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=224,
    patch_size=14, projection_dim=768,
)  # fmt: skip
"""Sizes of openai/clip-vit-large-patch14, LISA-7B's image encoder."""


def write_config(folder: str | Path, config: RosaliaConfig) -> None:
    """Write the configuration of a model into a folder, as config.json."""
    parts = {"llava": config.llava.to_dict(), "sam": config.sam.to_dict()}
    for part in parts.values():
        part.pop("transformers_version", None)
    write_json(Path(folder) / CONFIG, {"kind": "rosalia", "seg_id": config.seg_id} | parts)


def read_config(folder: str | Path) -> RosaliaConfig:
    """Return the configuration in a folder's config.json. Raises UserError if the file is missing or invalid."""
    path, kinds = Path(folder) / CONFIG, (KeyError, TypeError, AttributeError, StrictDataclassError)
    with refuse_unreadable(path, f"{path} is missing or damaged", "delete the model's folder and rerun", *kinds):
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.get("kind") != "rosalia":
            raise UserError(f"{path} is not the config of a converted ROSALIA model: convert the published model first")
        return RosaliaConfig(LlavaConfig(**values["llava"]), SamConfig(**values["sam"]), int(values["seg_id"]))
