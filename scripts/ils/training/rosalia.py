"""The engine rosalia: LISA-7B-v1, from which the paper's model was trained."""

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import CLIPVisionConfig

from ils.core.engines import Setup
from ils.core.seeds import stable_hash
from ils.rosalia.config import sam_h
from ils.rosalia.convert import reset_mask_branch, to_ours
from ils.rosalia.model import Rosalia
from ils.rosalia.tokens import Tokens
from ils.training.engine import Options

INPUTS = {
    "lisa": "results/weights/lisa/config.json",
    "lisa_added_tokens": "results/weights/lisa/added_tokens.json",
    "lisa_special_tokens": "results/weights/lisa/special_tokens_map.json",
    "lisa_tokenizer": "results/weights/lisa/tokenizer.model",
    "lisa_tokenizer_config": "results/weights/lisa/tokenizer_config.json",
    "lisa_shard_1": "results/weights/lisa/model-00001-of-00002.safetensors",
    "lisa_shard_2": "results/weights/lisa/model-00002-of-00002.safetensors",
    "clip": "results/weights/clip",
    "sam": "results/weights/sam.safetensors",
}
GPU = True


class Lisa:
    """Turns LISA's published weights into a model of ours; ``init``: what of them is kept."""

    def __init__(self, init: str, files: dict[str, str], seed: int):
        self.init, self.files, self.seed = init, files, seed

    def make(self, folder: Path, texts: Iterable[str]) -> None:
        """Write the model and LISA's tokenizer into ``folder``; the words are LISA's, whatever the ``texts``."""
        lisa = Path(self.files["lisa"]).parent
        tokens = Tokens.prepare(lisa)
        clip = self.files["clip"]
        sizes = {"clip_config": CLIPVisionConfig.from_pretrained(clip, local_files_only=True), "sam": sam_h()}
        to_ours(lisa, folder, clip=clip, seg_id=tokens.seg, image_id=tokens.image, **sizes)
        tokens.save(folder)
        if self.init == "paper_code":
            model = Rosalia.from_pretrained(folder, torch.bfloat16)
            reset_mask_branch(model, self.files["sam"], stable_hash("project", self.seed) % 2**63)
            model.save_pretrained(folder)


def load(options: Options, setup: Setup) -> Lisa:
    """Return the engine."""
    return Lisa(setup.own["init"], setup.files, options.seed)
