"""The segmenter: projects a language model's hidden states to prompts for SAM, one prompt per mask."""

import json
from pathlib import Path

import torch
from transformers import SamConfig

from cxr.base.errors import UserError, refuse_unreadable
from cxr.nets.tensors import tensor_kinds
from cxr.nets.weight_files import WeightFiles, fill_module, write_json, write_weight_file
from cxr.segmentation.head import build_projection, build_sam, decode_masks, forget_dtypes, make_empty
from cxr.segmentation.images import normalise_levels

CONFIG_FILE, WEIGHTS_FILE = "config.json", "segmenter.safetensors"
KIND = "segmenter"
TRAINED_PREFIXES = ("project.", "sam.mask_decoder.")  # name prefixes of trained tensors; SAM's encoders are frozen


class Segmenter(torch.nn.Module):
    """A projection from hidden states (hidden,) to prompts, and a SAM built from ``config``, with random weights."""

    def __init__(self, config: SamConfig, hidden: int):
        super().__init__()
        self.config, self.hidden = config, hidden
        self.sam = build_sam(config)
        self.project = build_projection(hidden, config.prompt_encoder_config.hidden_size)

    @property
    def side(self) -> int:
        """Side of SAM's square input image, px."""
        return self.config.vision_config.image_size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, h, w) of an image embedding."""
        vision = self.config.vision_config
        grid = vision.image_size // vision.patch_size
        return vision.output_channels, grid, grid

    @torch.no_grad()
    def embed(self, levels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (I, C, h, w) of square images, uint8 (I, S, S) on the segmenter's device.

        Images are encoded one by one in the dtype of the weights, so that no embedding depends on the batch.
        """
        dtype = self.project[0].weight.dtype
        with torch.autocast(levels.device.type, enabled=False):
            pixels = [normalise_levels(image[None], [tuple(image.shape)], dtype) for image in levels]
            return torch.cat([self.sam.vision_encoder(image_pixels).last_hidden_state for image_pixels in pixels])

    def forward(self, hidden: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Return mask logits (M, h, w) from hidden states (M, H) and image embeddings (M, C, h / 4, w / 4)."""
        return decode_masks(self.sam, self.project(hidden), embeddings)[0][:, 0]

    def save(self, folder: str | Path) -> None:
        """Write the configuration and all weights to a folder that does not exist yet."""
        folder = Path(folder)
        folder.mkdir(parents=True)
        sizes = self.config.to_dict()
        sizes.pop("transformers_version", None)
        write_json(folder / CONFIG_FILE, {"kind": KIND, "hidden": self.hidden, "sam": sizes})
        weights = self.state_dict()
        write_weight_file(folder / WEIGHTS_FILE, tensor_kinds(weights), weights.__getitem__)

    @classmethod
    def load(cls, folder: str | Path, dtype: torch.dtype = torch.float32) -> "Segmenter":
        """Load a segmenter from a folder that :meth:`save` wrote. Raises UserError if it is damaged or incomplete."""
        path = Path(folder, CONFIG_FILE)
        with refuse_unreadable(path, f"{path} is missing or damaged", "rerun its tuning", KeyError, TypeError):
            config = json.loads(path.read_text(encoding="utf-8"))
            if config["kind"] != KIND:
                raise UserError(f"{path} is not the config of a segmenter: rerun the tuning that wrote it")
            segmenter = make_empty_segmenter(SamConfig(**config["sam"]), int(config["hidden"]), dtype)
        with WeightFiles(Path(folder, WEIGHTS_FILE)) as weights:
            fill_module(segmenter, weights, str(folder))
        return segmenter.eval()


def make_empty_segmenter(config: SamConfig, hidden: int, dtype: torch.dtype = torch.float32) -> Segmenter:
    """Return a segmenter with uninitialised weights."""
    forget_dtypes(config)
    return make_empty(lambda: Segmenter(config, hidden), dtype)


def make_new_segmenter(config: SamConfig, hidden: int, seed: int) -> Segmenter:
    """Return a segmenter with an uninitialised SAM, and a projection with torch's random initialisation by ``seed``."""
    segmenter = make_empty_segmenter(config, hidden)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in segmenter.project:
            if isinstance(layer, torch.nn.Linear):
                layer.reset_parameters()
    return segmenter
