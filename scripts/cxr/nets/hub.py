"""Find models that were downloaded from the Hugging Face hub. Jobs never download models."""

import os
from pathlib import Path

from cxr.base.errors import UserError


def is_downloaded(model: str, revision: str) -> bool:
    """Return whether a model is in the hub's cache on this machine. The hub's package need not be installed."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    folder = cache / f"models--{model.replace('/', '--')}"
    reference = folder / "refs" / (revision or "main")
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    return bool(commit) and (folder / "snapshots" / commit).is_dir()


def find_downloaded_model(key: str, model: str, revision: str, setting: str = "model") -> str:
    """Return the folder of ``model`` (folder or Hugging Face id), or raise UserError about ``key.setting``."""
    if Path(model).is_dir():
        return model
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return snapshot_download(model, revision=revision or None, local_files_only=True)
    except HFValidationError:
        raise UserError(f"{key}.{setting}: {model!r} is neither a folder nor a Hugging Face id: correct it") from None
    except LocalEntryNotFoundError:
        pin = f" --revision {revision}" if revision else ""
        name = f"{model}@{revision}" if revision else model
        raise UserError(
            f"{key}.{setting}: {name} is not on this machine: run `hf download {model}{pin}` on a machine with network "
            "and the same HF_HOME, or give the model's folder"
        ) from None
