"""A trained model in the layouts of published checkpoints, for code that was written for LISA or for SAM."""

import shutil
from pathlib import Path

from cxr.base.atomic import whole
from cxr.base.errors import UserError
from cxr.ils.rosalia.convert import to_published, to_sam

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip


def run_published(*, model: str | Path, published: str | Path, base: str | Path | None = None) -> None:
    """Turn the folder ``model`` of a training into the folder ``published``, bfloat16 as published models are.

    CLIP's weights go with it, for they may have been trained. ``base``: folder, or config.json in it, of the published
    model that the training began from, whose config.json and tokenizer are taken over; without it both tell of
    ``model``. The folder is there only when it is whole. Raises UserError for a model that is missing or damaged.
    """
    if base:
        base = Path(base).parent if Path(base).is_file() else Path(base)
    with whole(published) as making:
        to_published(model, making, base=base or None, with_clip=True)
        words = Path(base or model)
        found = [words / name for name in TOKENIZER if (words / name).is_file()]
        if not found:
            raise UserError(f"{words} holds no tokenizer ({', '.join(TOKENIZER[:3])}): make or get it anew")
        for path in found:
            shutil.copyfile(path, making / path.name)


def run_sam(*, model: str | Path, sam: str | Path) -> None:
    """Write SAM of the folder ``model`` of a training as ``sam``: safetensors with the names of sam_vit_h_4b8939.pth.

    Raises UserError for a model that is missing or damaged.
    """
    to_sam(model, sam)
