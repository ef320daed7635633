"""Export a trained model in the layouts of the published checkpoints of LISA and SAM."""

import shutil
from pathlib import Path

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError
from cxr.ils.rosalia.convert import to_published, to_sam

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip


def run_published(*, model: str | Path, published: str | Path, base: str | Path | None = None) -> None:
    """Convert the folder ``model`` of a training to the folder ``published``, in bfloat16 like the published models.

    CLIP's weights are included, because they may have been trained. ``base``: folder (or config.json in it) of the
    published model that the training started from, whose config.json and tokenizer are copied; without it both are
    derived from ``model``. Raises UserError for a missing or damaged model.
    """
    if base:
        base = Path(base).parent if Path(base).is_file() else Path(base)
    with atomic_folder(published) as making:
        to_published(model, making, base=base or None, with_clip=True)
        words = Path(base or model)
        tokenizer_paths = [words / name for name in TOKENIZER if (words / name).is_file()]
        if not tokenizer_paths:
            raise UserError(f"{words} holds no tokenizer ({', '.join(TOKENIZER[:3])}): make or get it again")
        for path in tokenizer_paths:
            shutil.copyfile(path, making / path.name)


def run_sam(*, model: str | Path, sam: str | Path) -> None:
    """Write SAM of the folder ``model`` to the safetensors file ``sam``, with the names of sam_vit_h_4b8939.pth.

    Raises UserError for a missing or damaged model.
    """
    to_sam(model, sam)
