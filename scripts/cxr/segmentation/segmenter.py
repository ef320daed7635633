"""A segmenter: the projection and SAM, with a prompt from a language model's hidden state for each mask."""

import json
from pathlib import Path

import torch
from transformers import SamConfig
from transformers.initialization import no_init_weights

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.nets.weight_files import WeightFiles, fill_module, write_json, write_weight_file
from cxr.segmentation.head import decoded, projection, sam_net
from cxr.segmentation.pictures import normalised

CONFIG, WEIGHTS = "config.json", "segmenter.safetensors"
KIND = "segmenter"
TRAINED = ("project.", "sam.mask_decoder.")
"""Beginnings of the names of tensors that a training changes; SAM's encoders stay as they are."""


class Segmenter(torch.nn.Module):
    """``project``: from hidden states of ``hidden`` values to prompts; ``sam``: of the sizes of ``config``.

    Weights are drawn from torch's generator.
    """

    def __init__(self, config: SamConfig, hidden: int):
        super().__init__()
        self.config, self.hidden = config, hidden
        self.sam = sam_net(config)
        self.project = projection(hidden, config.prompt_encoder_config.hidden_size)

    @property
    def side(self) -> int:
        """Side of SAM's square image, px."""
        return self.config.vision_config.image_size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, h, w) of an image's embedding."""
        vision = self.config.vision_config
        grid = vision.image_size // vision.patch_size
        return vision.output_channels, grid, grid

    @torch.no_grad()
    def embed(self, levels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (I, C, h, w) of square images, uint8 (I, S, S) on the segmenter's device.

        Images are encoded one by one and in the weights' number type, so that no batch changes an embedding.
        """
        dtype = self.project[0].weight.dtype
        with torch.autocast(levels.device.type, enabled=False):
            pixels = [normalised(image[None], [tuple(image.shape)], dtype) for image in levels]
            return torch.cat([self.sam.vision_encoder(image_pixels).last_hidden_state for image_pixels in pixels])

    def forward(self, hidden: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Return mask logits (M, h, w) of hidden states (M, H) about the images of embeddings (M, C, h / 4, w / 4)."""
        return decoded(self.sam, self.project(hidden), embeddings)[0][:, 0]

    def save(self, folder: str | Path) -> None:
        """Write sizes and all weights into a new folder."""
        folder = Path(folder)
        folder.mkdir(parents=True)
        sizes = self.config.to_dict()
        sizes.pop("transformers_version", None)
        write_json(folder / CONFIG, {"kind": KIND, "hidden": self.hidden, "sam": sizes})
        tensors = self.state_dict()
        kinds = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        write_weight_file(folder / WEIGHTS, kinds, tensors.__getitem__)

    @classmethod
    def load(cls, folder: str | Path, dtype: torch.dtype = torch.float32) -> "Segmenter":
        """Read what :meth:`save` wrote. Raises UserError for a damaged folder, or one that lacks a tensor."""
        path = Path(folder, CONFIG)
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            if config["kind"] != KIND:
                raise UserError(f"{path} is not the config of a segmenter: tune its run again")
            segmenter = empty(SamConfig(**config["sam"]), int(config["hidden"]), dtype)
        except (OSError, ValueError, KeyError, TypeError) as error:
            refuse_machine_fault(path, error)
            raise UserError(f"{path} is missing or damaged ({type(error).__name__}): tune its run again") from None
        with WeightFiles(Path(folder, WEIGHTS)) as weights:
            fill_module(segmenter, weights, str(folder))
        return segmenter.eval()


def empty(config: SamConfig, hidden: int, dtype: torch.dtype = torch.float32) -> Segmenter:
    """Return a segmenter whose weights are to be filled."""
    config.dtype = None  # a number type in the file would become part of the net
    for part in (config.vision_config, config.prompt_encoder_config, config.mask_decoder_config):
        part.dtype = None
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with no_init_weights():
            return Segmenter(config, hidden)
    finally:
        torch.set_default_dtype(before)


def begun(config: SamConfig, hidden: int, seed: int) -> Segmenter:
    """Return a segmenter whose SAM is to be filled, and whose projection is drawn by ``seed`` as torch's layers are."""
    segmenter = empty(config, hidden)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in segmenter.project:
            if isinstance(layer, torch.nn.Linear):
                layer.reset_parameters()
    return segmenter
