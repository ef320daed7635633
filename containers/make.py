"""Write what an Apptainer image is built from: a lock file for each environment and the image's definition.

    python containers/make.py [ENVIRONMENT ...] [--definition containers/cxr-ils.def]

The definition makes the environments of ``envs/`` (those named, else all) where ``snakemake --sdm conda apptainer``
looks for them in a containerized workflow: in a folder named by the content of the environment's file. So an image that
was built from other environment files is noticed by Snakemake. ``snakemake --containerize`` does the same, but needs
conda, sees only the environments of the engines that are chosen, and locks nothing.

A lock names every package that pip would take for Linux on x86-64 (glibc 2.28 and later) with the checksums of its
files, from PyPI; needs uv and the network. What a lock already names is kept while it fits: delete the file to take the
newest. Python itself comes from conda-forge when the image is built: an explicit list of its packages cannot be made
without conda.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import yaml
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
ENVS, LOCKS = ROOT / "envs", ROOT / "containers"
BASE = "condaforge/miniforge3:25.3.0-3"
"""Image with conda, which Snakemake asks for in the container (24.7.1 or later)."""
PREFIX = "/conda-envs"
"""Where Snakemake looks for the environments in the container."""
INDEX = "https://pypi.org/simple"
TARGET = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
OURS = ("UV_", "PIP_")
"""Variables that would let an index of this machine into the locks."""

DEFINITION = """\
# The stages' environments, where Snakemake looks for them. Made by containers/make.py from envs/ and the locks beside
# this file; do not edit. Built from the repository's root (docs/how-to/containers.md):
#   apptainer build cxr-ils.sif {name}
Bootstrap: docker
From: {base}

%labels
    io.github.snakemake.containerized true
    io.github.snakemake.conda_env_hash {digest}

%files
{files}

%post
    umask 022
    # libGL: the OpenCV of the engine cxas; g++: DeepSpeed builds what it needs of its kernels when it first runs
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends g++ libgl1 libglib2.0-0
    rm -rf /var/lib/apt/lists/*
    # uv links files that several environments hold, torch above all
    /opt/conda/bin/python -m pip install --no-cache-dir uv=={uv}
    export UV_CACHE_DIR={prefix}/.uv UV_LINK_MODE=hardlink DS_BUILD_OPS=0
    make_env() {{
        name=$1 prefix={prefix}/$2
        shift 2
        /opt/conda/bin/conda create --yes --quiet --prefix "$prefix" --override-channels --channel conda-forge "$@"
        /opt/conda/bin/uv pip install --quiet --python "$prefix/bin/python" --no-deps --require-hashes \\
            --requirements "/opt/cxr-ils/$name.lock"
    }}
{calls}
    /opt/conda/bin/conda clean --all --yes
    rm -rf {prefix}/.uv

%test
    for python in {prefix}/*/bin/python; do
        "$python" -c "import h5py, hdf5plugin, numpy, polars"
    done
"""


def environments() -> list[str]:
    """Return the names of the environments of ``envs/``."""
    return sorted(path.stem for path in ENVS.glob("*.yaml"))


def dependencies(name: str) -> tuple[list[str], list[str]]:
    """Return what an environment takes from conda and what from pip."""
    listed = yaml.safe_load((ENVS / f"{name}.yaml").read_text())["dependencies"]
    pip = next((part["pip"] for part in listed if isinstance(part, dict)), [])
    return [part for part in listed if isinstance(part, str)], pip


def content_hash(name: str) -> str:
    """Return the name that Snakemake gives an environment's folder in a container (its ``Env.content_hash``)."""
    digest = hashlib.md5(usedforsecurity=False)
    for ending in (".post-deploy.sh", ".linux-64.pin.txt", ".yaml"):
        if (path := ENVS / f"{name}{ending}").is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def uv_version() -> str:
    """Return the version of uv that the tests use, for the image."""
    pins = (ROOT / "requirements" / "test.in").read_text().splitlines()
    return next(line.removeprefix("uv==") for line in pins if line.startswith("uv=="))


def definition(names: list[str], path: str) -> str:
    """Return the text of an Apptainer definition with these environments, to be kept under ``path``."""
    whole = hashlib.sha256(b"".join((ENVS / f"{name}.yaml").read_bytes() for name in names))
    calls = [f"    make_env {name} {content_hash(name)} {' '.join(dependencies(name)[0])}" for name in names]
    files = [f"    {LOCKS.relative_to(ROOT)}/{name}.lock /opt/cxr-ils/{name}.lock" for name in names]
    return DEFINITION.format(
        base=BASE,
        name=path,
        prefix=PREFIX,
        digest=whole.hexdigest(),
        uv=uv_version(),
        files="\n".join(files),
        calls="\n".join(calls),
    )


def write_lock(name: str) -> None:
    """Resolve an environment's pip part into its lock file. Raises CalledProcessError if it cannot be resolved."""
    lock = LOCKS / f"{name}.lock"
    command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-config"]
    command += ["--no-header", "--no-annotate", "--generate-hashes", *TARGET, "--default-index", INDEX, "-"]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    subprocess.run(
        [*command, "--output-file", str(lock)],
        input="\n".join(dependencies(name)[1]),
        env=environ,
        text=True,
        check=True,
    )
    head = f"# Made by containers/make.py from envs/{name}.yaml: what pip takes for it on Linux, x86-64, from PyPI.\n"
    lock.write_text(head + lock.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="*", help="names in envs/, without .yaml; all if none is given")
    parser.add_argument("--definition", default="containers/cxr-ils.def")
    given = parser.parse_args()
    if unknown := set(given.environments) - set(environments()):
        sys.exit(f"there is no envs/{min(unknown)}.yaml: the environments are {', '.join(environments())}")
    names = sorted(set(given.environments)) or environments()
    for name in names:
        write_lock(name)
    Path(given.definition).write_text(definition(names, given.definition))
    print(f"{len(names)} locks and {given.definition}")


if __name__ == "__main__":
    main()
