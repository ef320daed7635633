"""Feature engine clip: cosine between an edited image and its prompt, by any CLIP model in transformers' layout.

The folder has config.json, model.safetensors, preprocessor_config.json and the tokenizer's files, like XrayCLIP's.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

from cxr.base.engines import Setup
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import is_not_from_input
from cxr.nets.devices import inference, select_device
from cxr.semisyn.realism.engine import Features, digest_of, sha256_of

METRICS = {"similarity": "clip"}
INSTEAD = "model"
GPU = True
KEY = "semisyn.realism.clip.model"
NEEDED_FILES = (
    ("config.json",),
    ("model.safetensors",),
    ("preprocessor_config.json",),
    ("tokenizer.json", "vocab.json"),
)
"""Required files of the folder; one of each tuple is enough."""


class ClipFeatures:
    """See :class:`cxr.semisyn.realism.engine.FeatureEngine`; both embeddings are normalised to length 1."""

    def __init__(self, folder: Path, device: torch.device, batch: int):
        self.net = _read_net(folder).eval().to(device)
        self.words = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
        self.pictures = CLIPImageProcessorPil.from_pretrained(folder, local_files_only=True)
        self.device, self.weights = device, digest_of(str(folder / "model.safetensors"))
        self.batch = batch if device.type != "cpu" else 1  # sums must not depend on the other rows

    @inference()
    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""
        rgb_images = [Image.fromarray(image).convert("RGB") for image in images]
        pixels = self.pictures(rgb_images, return_tensors="pt")["pixel_values"].to(self.device)
        longest = self.net.config.text_config.max_position_embeddings
        keywords = {"padding": "max_length", "truncation": True, "max_length": longest, "return_tensors": "pt"}
        tokens = self.words(list(prompts), **keywords).to(self.device)
        image_embeddings = self.net.visual_projection(self.net.vision_model(pixel_values=pixels).pooler_output)
        text_embeddings = self.net.text_projection(
            self.net.text_model(tokens["input_ids"], attention_mask=tokens["attention_mask"]).pooler_output
        )
        image_embeddings, text_embeddings = (
            torch.nn.functional.normalize(part, dim=-1) for part in (image_embeddings, text_embeddings)
        )
        return Features(image_embeddings.cpu().numpy(), (image_embeddings * text_embeddings).sum(dim=-1).cpu().numpy())


def _read_net(folder: Path) -> CLIPModel:
    """Read the model of a folder. Raises UserError for another model or an incomplete one."""
    if missing := [names for names in NEEDED_FILES if not any((folder / name).is_file() for name in names)]:
        raise UserError(f"{KEY} is {str(folder)!r}, which has no {' or '.join(missing[0])}: give the whole folder")
    try:
        keywords = {
            "local_files_only": True,
            "use_safetensors": True,
            "output_loading_info": True,
            "dtype": torch.float32,
        }
        net, loading_info = CLIPModel.from_pretrained(folder, **keywords)
    except Exception as error:
        refuse_machine_fault(folder, error)
        if is_not_from_input(error):
            raise
        raise UserError(
            f"{KEY} is {str(folder)!r}, which cannot be read as a CLIP model ({type(error).__name__}): give another"
        ) from None
    if wrong := sorted({*loading_info["missing_keys"], *map(str, loading_info["mismatched_keys"])}):
        raise UserError(f"{KEY} is {str(folder)!r}, whose weights lack {wrong[0]}: give a whole CLIP model")
    return net


def load(setup: Setup) -> ClipFeatures:
    """Load the model. Raises UserError for an unusable folder, or weights that differ from the pinned ones."""
    weights, pinned = Path(setup.files["folder"], "model.safetensors"), setup.own.get("sha256")
    if pinned and weights.is_file() and (sha256 := sha256_of(weights)) != pinned:
        raise UserError(
            f"{weights} has the digest {sha256}, not the one of semisyn.realism.clip.sha256: give the file that it "
            "names"
        )
    return ClipFeatures(Path(setup.files["folder"]), select_device(setup.device, setup.asked), setup.batch)
