"""Copying weights from the Hugging Face hub at a pinned revision.

Only safetensors, configurations and vocabularies are copied; a repository's code is neither downloaded nor run.
"""

import shutil
from pathlib import Path

from huggingface_hub import errors, hf_hub_download

from cxr.base.errors import UserError
from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights.manifest import WeightsOptions, file_facts

PICKLES = {
    "model.safetensors": "pytorch_model.bin",
    "diffusion_pytorch_model.safetensors": "diffusion_pytorch_model.bin",
}
"""The pickle that a repository without safetensors holds instead."""


def run(*, weights: str, manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Copy the files of ``options`` into the folder ``weights``, in the repository's layout.

    A pickle instead of a safetensors file is converted. Raises UserError if a file is unavailable or invalid.
    """
    published, used = [], []
    for name, sha256 in options.files.items():
        source = fetch(options, name)
        remedy = f"delete it there and run snakemake weights_{options.artefact} again"
        manifests.check_published_file(source, f"{options.artefact}/{name}", sha256, remedy)
        target = Path(weights, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".bin":
            from cxr.imaging.weights import state_dict  # here: the others need no torch

            state_dict.convert_state_dict(source, target)
        else:
            shutil.copyfile(source, target)
        if target.suffix == ".safetensors":
            manifests.check_safetensors_file(target, source, remedy, options.tensors, options.values)
        elif target.suffix == ".json":
            manifests.check_json_file(target, source, remedy)
        published.append(file_facts(str(Path(name).with_name(source.name)), source))
        used.append(file_facts(name, target))
    manifests.write_manifest(manifest, options, attrs, published, used)


def fetch(options: WeightsOptions, name: str) -> Path:
    """Return a file, or the pickle instead of it, in the hub's cache; a missing file is downloaded first.

    Raises UserError with a separate message for each cause of failure.
    """
    page = f"https://huggingface.co/{options.repository}"
    pickle = PICKLES.get(Path(name).name)
    try:
        return Path(hf_hub_download(options.repository, name, revision=options.revision))
    except errors.RemoteEntryNotFoundError:
        if pickle:
            return fetch(options, str(Path(name).with_name(pickle)))
        raise UserError(f"{options.repository} has no {name} at revision {options.revision}: look at {page}") from None
    except errors.GatedRepoError:
        raise UserError(
            f"{options.repository} is gated: accept its terms at {page}, log in with `hf auth login` or set HF_TOKEN, "
            "and run snakemake weights again"
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise UserError(
            f"the hub knows no {options.repository} at revision {options.revision}, or not for you: look at {page} and "
            "log in with `hf auth login`"
        ) from None
    except errors.LocalEntryNotFoundError:
        raise UserError(
            f"{name} of {options.repository} is not in this machine's Hugging Face cache and the hub is out of reach: "
            "run snakemake weights on a machine with network and the same HF_HOME (docs/how-to/models.md)"
        ) from None
    except errors.HfHubHTTPError as error:
        raise UserError(
            f"the hub did not give {name} of {options.repository} (answer {error.response.status_code}): try later"
        ) from None
