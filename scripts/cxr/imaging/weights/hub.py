"""Copying weights from the Hugging Face hub at a pinned revision. Code in a repository is never downloaded or run."""

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
"""{safetensors file: name of the pickle that older repositories have instead}."""


def run(*, weights: str, manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Copy the files of ``options`` into the folder ``weights``, in the repository's layout.

    A pickle that replaces a safetensors file is converted. Raises UserError if a file is unavailable or invalid.
    """
    published, used = [], []
    remedy = f"delete it and run snakemake weights_{options.artefact} again"
    for name, sha256 in options.files.items():
        source, target = fetch(options, name), Path(weights, name)
        convert = shutil.copyfile
        if source.suffix == ".bin":
            from cxr.imaging.weights.state_dict import convert_state_dict as convert  # only pickles need torch
        source_name, pin = str(Path(name).with_name(source.name)), f"{options.artefact}/{name}"
        published.append(manifests.check_published_file(source, source_name, pin, sha256, remedy))
        manifests.install_file(source, target, convert, options, remedy)
        used.append(file_facts(name, target))
    manifests.write_manifest(manifest, options, attrs, published, used)


def fetch(options: WeightsOptions, name: str) -> Path:
    """Download a file to the hub's cache and return its path. If the repository has a pickle instead of the file,
    download the pickle. Raises UserError with the cause."""
    repository, page = options.repository, f"https://huggingface.co/{options.repository}"
    try:
        return Path(hf_hub_download(repository, name, revision=options.revision))
    except errors.RemoteEntryNotFoundError:
        if pickle := PICKLES.get(Path(name).name):
            return fetch(options, str(Path(name).with_name(pickle)))
        problem = f"{repository} has no {name} at revision {options.revision}: look at {page}"
    except errors.GatedRepoError:
        problem = f"{repository} is gated: accept its terms at {page}, then log in with `hf auth login` or set HF_TOKEN"
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        problem = f"the hub has no {repository} at revision {options.revision}: see {page}, or log in (`hf auth login`)"
    except errors.LocalEntryNotFoundError:
        problem = (
            f"{name} of {repository} is not in this machine's Hugging Face cache and the hub is out of reach: "
            "run snakemake weights on a machine with network and the same HF_HOME (docs/how-to/models.md)"
        )
    except errors.HfHubHTTPError as error:
        problem = f"the hub did not send {name} of {repository} (HTTP {error.response.status_code}): try later"
    raise UserError(problem)
