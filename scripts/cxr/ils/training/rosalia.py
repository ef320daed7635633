"""The engine ``rosalia``, which starts from LISA-7B-v1, as in the paper, or from the published ROSALIA.

This module also converts models without training. Published checkpoints are converted to this project's layout, and
trained models to the layout of the published ones.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from transformers import CLIPVisionConfig

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.ils.rosalia.convert import reset_mask_branch, to_ours, to_published
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training.settings import TrainingOptions

INPUTS = {"lisa": "results/weights/lisa", "clip": "results/weights/clip", "sam": "results/weights/sam.safetensors"}
GPU = True
MODEL_MB = 15_400
"""Memory in MB of the 7.70 billion weights in bfloat16."""
TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip


def convert_checkpoint(folder: Path, lisa: str | Path, clip: str | Path) -> None:
    """Convert the published checkpoint in the folder ``lisa`` to this project's layout, and write it into ``folder``.

    CLIP's weights are read from ``clip``. The tokenizer is written too. Raises UserError for wrong or damaged files.
    """
    tokens = Tokens.prepare(lisa)
    clip_config = CLIPVisionConfig.from_pretrained(clip, local_files_only=True)
    to_ours(lisa, folder, clip=clip, clip_config=clip_config, seg_id=tokens.seg, image_id=tokens.image)
    tokens.save(folder)


def load(options: TrainingOptions, files: Mapping, folder: Path, texts: Iterable[str]) -> None:
    """Write the initial model and tokenizer, from ``files``; ``init`` paper_code: with SAM and the projection reset."""
    del texts
    convert_checkpoint(folder, files["lisa"], files["clip"])
    if options.rosalia.init == "paper_code":
        model = Rosalia.from_pretrained(folder, torch.bfloat16)
        reset_mask_branch(model, files["sam"], stable_hash("project", options.seed) % 2**63)
        model.save_pretrained(folder)


def run_untrained(*, model: str, lisa: str, clip: str) -> None:
    """Convert the checkpoint of LISA or ROSALIA in ``lisa``, with CLIP in ``clip``, to the model folder ``model``."""
    with atomic_folder(model) as making:
        convert_checkpoint(making, lisa, clip)


def run_published(*, model: str | Path, published: str | Path, base: str | Path | None = None) -> None:
    """Write the trained model ``model`` in the published layout, in bfloat16 and with CLIP's weights, to ``published``.

    ``base``: folder of the published model from which the training started, or its config.json. The config.json and
    tokenizer are copied from ``base`` or, without it, made from ``model``. Raises UserError for a damaged model.
    """
    if base:
        base = Path(base).parent if Path(base).is_file() else Path(base)
    with atomic_folder(published) as making:
        to_published(model, making, base=base or None, with_clip=True)
        words = Path(base or model)
        tokenizer_paths = [words / name for name in TOKENIZER if (words / name).is_file()]
        if not tokenizer_paths:
            raise UserError(f"{words} has no tokenizer ({', '.join(TOKENIZER[:3])}): make or download them")
        for path in tokenizer_paths:
            shutil.copyfile(path, making / path.name)
