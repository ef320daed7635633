"""Feature engine ``clip``: cosine between an image and its prompt, by a CLIP model in transformers' layout."""

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
from cxr.semisyn.realism.engine import FeatureEngine, Features, digest_of, sha256_of

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


def _read_net(folder: Path) -> CLIPModel:
    """Read the CLIP model of a folder. Raise UserError if the folder is incomplete or has another kind of model."""
    if missing := [names for names in NEEDED_FILES if not any((folder / name).is_file() for name in names)]:
        raise UserError(f"{KEY} is {str(folder)!r}, which has no {' or '.join(missing[0])}: name a complete folder")
    keywords = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True, "dtype": torch.float32}
    try:
        net, loading_info = CLIPModel.from_pretrained(folder, **keywords)
    except Exception as error:
        refuse_machine_fault(folder, error)
        if is_not_from_input(error):
            raise
        raise UserError(
            f"{KEY} is {str(folder)!r}, which has no readable CLIP model ({type(error).__name__}): name another folder"
        ) from None
    if wrong := sorted({*loading_info["missing_keys"], *map(str, loading_info["mismatched_keys"])}):
        raise UserError(f"{KEY} is {str(folder)!r}, whose weights lack {wrong[0]}: name a complete model")
    return net


def load(setup: Setup) -> FeatureEngine:
    """Load the model. Raise UserError for a faulty folder, or weights whose SHA-256 is not that in the settings."""
    folder = Path(setup.files["folder"])
    weights, pinned = folder / "model.safetensors", setup.engine_settings.get("sha256")
    if pinned and weights.is_file() and (sha256 := sha256_of(weights)) != pinned:
        raise UserError(
            f"{weights} has the SHA-256 {sha256}, not that of semisyn.realism.clip.sha256: replace the file"
        )
    device = select_device(setup.device, setup.requested_gpus)
    net = _read_net(folder).eval().to(device)
    tokenizer = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
    processor = CLIPImageProcessorPil.from_pretrained(folder, local_files_only=True)
    longest = net.config.text_config.max_position_embeddings
    keywords = {"padding": "max_length", "truncation": True, "max_length": longest, "return_tensors": "pt"}

    @inference()
    def compute_features(images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        rgb_images = [Image.fromarray(image).convert("RGB") for image in images]
        pixels = processor(rgb_images, return_tensors="pt")["pixel_values"].to(device)
        tokens = tokenizer(list(prompts), **keywords).to(device)
        text = net.text_model(tokens["input_ids"], attention_mask=tokens["attention_mask"]).pooler_output
        embeddings = (
            net.visual_projection(net.vision_model(pixel_values=pixels).pooler_output),
            net.text_projection(text),
        )
        image_embeddings, text_embeddings = (torch.nn.functional.normalize(part, dim=-1) for part in embeddings)
        return Features(image_embeddings.cpu().numpy(), (image_embeddings * text_embeddings).sum(dim=-1).cpu().numpy())

    # one image at a time on a CPU, so that no sum depends on other images
    return FeatureEngine(compute_features, digest_of(weights), setup.batch if device.type != "cpu" else 1)
