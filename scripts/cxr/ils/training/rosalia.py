"""The engine rosalia: starts from LISA-7B-v1, as in the paper, or from the published ROSALIA."""

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import CLIPVisionConfig

from cxr.base.engines import Setup
from cxr.base.seeds import stable_hash
from cxr.ils.rosalia.convert import reset_mask_branch, to_ours
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training.settings import TrainingOptions

INPUTS = {
    "lisa": "results/weights/lisa",
    "clip": "results/weights/clip",
    "sam": "results/weights/sam.safetensors",
}
GPU = True
MODEL_MB = 15_400
"""Memory of 7.70 billion weights in bfloat16."""


def convert_checkpoint(folder: Path, lisa: str | Path, clip: str | Path) -> None:
    """Convert the folder of a published checkpoint to our layout, with its tokenizer.

    Raises UserError if weights or tokenizer are missing, damaged or of another model.
    """
    tokens = Tokens.prepare(lisa)
    clip_config = CLIPVisionConfig.from_pretrained(clip, local_files_only=True)
    to_ours(lisa, folder, clip=clip, clip_config=clip_config, seg_id=tokens.seg, image_id=tokens.image)
    tokens.save(folder)


class LisaStart:
    """Creates the model from LISA's published weights; ``init`` ``paper_code`` resets its mask branch."""

    def __init__(self, init: str, files: dict[str, str], seed: int):
        self.init, self.files, self.seed = init, files, seed

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and LISA's tokenizer into ``folder``; ``texts`` are ignored."""
        convert_checkpoint(folder, self.files["lisa"], self.files["clip"])
        if self.init == "paper_code":
            model = Rosalia.from_pretrained(folder, torch.bfloat16)
            reset_mask_branch(model, self.files["sam"], stable_hash("project", self.seed) % 2**63)
            model.save_pretrained(folder)


def load(options: TrainingOptions, setup: Setup) -> LisaStart:
    """Return the engine."""
    return LisaStart(options.rosalia.init, setup.files, options.seed)
