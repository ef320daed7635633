"""Choosing and checking the device that a net runs on. A job that requested a GPU and sees none stops."""

import logging
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from cxr.base.errors import UserError, describe, out_of_memory
from cxr.base.faults import Broken

log = logging.getLogger("cxr")


BATCH_SYSTEMS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "KUBERNETES_SERVICE_HOST")
"""Environment variables that show that a batch system runs the job."""
DRIVER = Path("/proc/driver/nvidia/version")
"""File in which the loaded NVIDIA driver states its version."""


def device_of(wanted: str, asked: int | None = None) -> torch.device:
    """Return the device for ``compute.device``: ``auto`` takes a GPU if the job requested one, else the CPU.

    ``asked`` and UserError: as in :func:`gpus_of`. Raises Broken for a GPU that cannot add two numbers.
    """
    if not gpus_of(wanted, asked):
        return torch.device("cpu")
    if asked is not None:
        _try()
    return torch.device("cuda")


def gpus_of(wanted: str, asked: int | None = None) -> int:
    """Return how many GPUs a job uses under ``compute.device``, 0 for the CPU. Touches none of them.

    ``asked``: the number that the job requested; None outside a job, where ``auto`` takes one GPU if there is one.
    Raises UserError if fewer are visible than requested. A machine without a batch system and without any GPU only
    gets a warning in the log.
    """
    if wanted == "cpu" or (wanted == "auto" and asked == 0):
        return 0
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wants = max(asked or 0, wanted == "cuda")
    if seen >= wants:
        return min(seen, asked or 1)
    software = _software()
    given = any(os.environ.get(name) for name in BATCH_SYSTEMS)
    if seen or given or wants > 1 or wanted == "cuda" or _driver():
        asking = f"this job asked for {asked} GPU{'s' * (asked > 1)}, but it" if asked else ""
        told = asking or "compute.device is 'cuda', but this job"
        raise UserError(
            f"{told} sees {seen or 'no GPU'} on {platform.node()} ({software}): mend the node or the "
            f"environment; or set compute.gpus to {f'{seen} or ' if seen else ''}0, or compute.device to cpu: a "
            "CPU does the same, slowly"
        )
    log.warning("no GPU here (%s): the CPU does the same, slowly; compute.gpus: 0 says that this is meant", software)
    return 0


def _software() -> str:
    """Return which CUDA torch was built for, which driver is loaded, and torch's own error if there is one."""
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    driver = _driver()
    try:
        torch.cuda.init()
        said = ""
    except (RuntimeError, AssertionError) as error:
        said = f", torch says: {str(error).strip().splitlines()[0].rstrip('.')}"
    loaded = f"the driver is {driver}" if driver else "no NVIDIA driver is loaded"
    return f"torch {torch.__version__} was built {built}, {loaded}{said}"


def _driver() -> str:
    """Return the version of the loaded NVIDIA driver, "" without one."""
    try:
        text = DRIVER.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"\b\d{3,}\.[\d.]+", text)
    return found.group() if found else "unknown"


def _try() -> None:
    """Raise Broken if torch cannot add on this process's GPU: its kernels do not support the GPU, or it is faulty."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    try:
        right = float((torch.ones(2, device=device) + 1).sum()) == 4
    except Exception as error:
        if out_of_memory(error):
            raise
        raise Broken(f"the GPU of {platform.node()} cannot be used ({describe(error)}; {_software()})") from error
    if not right:
        raise Broken(f"the GPU of {platform.node()} cannot add ({_software()})")
    log.info("the net runs on %s", torch.cuda.get_device_name(device))


@contextmanager
def inference() -> Iterator[None]:
    """Run nets without gradients, in full float32 and with deterministic algorithms."""
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        yield
