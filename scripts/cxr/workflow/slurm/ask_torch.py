"""Job of `make slurm-check` that tests a node's GPUs in the environment of an engine (profiles/slurm/check.smk)."""

import os
import platform
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from cxr.base.errors import UserError
from cxr.base.faults import Broken
from cxr.nets.devices import select_device


def describe_gpus(num_gpus: int) -> str:
    """Add two numbers on each GPU, and return the node, GPUs and torch's version as text. Exit if a GPU fails."""
    try:
        for rank in range(num_gpus):
            os.environ["LOCAL_RANK"] = str(rank)
            select_device("cuda", num_gpus)
    except (UserError, Broken) as error:
        sys.exit(str(error))
    return f"{platform.node()}: {num_gpus} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}"


if "snakemake" in globals():
    sys.stdout = sys.stderr = open(snakemake.log[0], "w", encoding="utf-8")  # noqa: SIM115
    Path(snakemake.output[0]).write_text(describe_gpus(snakemake.params.gpus), encoding="utf-8")
