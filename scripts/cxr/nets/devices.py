"""The device that a net runs on, and how: a job that asked for a GPU and sees none stops."""

import logging
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from cxr.base.errors import UserError, out_of_memory
from cxr.base.faults import Broken, brief

log = logging.getLogger("cxr")


BATCH_SYSTEMS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "KUBERNETES_SERVICE_HOST")
"""Variables by which a job knows that a batch system gave it what it asked for."""
DRIVER = Path("/proc/driver/nvidia/version")
"""Where a loaded driver says what it is."""


def device_of(wanted: str, asked: int | None = None) -> torch.device:
    """Return the device for ``compute.device``: ``auto`` takes a GPU if the job asked for one, else the CPU.

    ``asked`` and UserError: as of :func:`gpus_of`. Raises Broken for a GPU that cannot add two numbers.
    """
    if not gpus_of(wanted, asked):
        return torch.device("cpu")
    if asked is not None:
        _try()
    return torch.device("cuda")


def gpus_of(wanted: str, asked: int | None = None) -> int:
    """Return how many GPUs ``compute.device`` has a job use, 0 for the CPU; none of them is touched.

    ``asked``: how many the job asked for, None where no job is known: then ``auto`` takes one if there is one. Raises
    UserError where fewer are seen than asked for, but for a machine of one's own without any: that is told in the log.
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
    """Return what torch was built for and which driver is loaded, and what torch says of it."""
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
    """Return the version of the NVIDIA driver that is loaded, "" for none."""
    try:
        text = DRIVER.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"\b\d{3,}\.[\d.]+", text)
    return found.group() if found else "unknown"


def _try() -> None:
    """Raise Broken for this process's GPU if torch cannot add on it: too new or too old for its kernels, or ill."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    try:
        right = float((torch.ones(2, device=device) + 1).sum()) == 4
    except Exception as error:
        if out_of_memory(error):
            raise
        raise Broken(f"the GPU of {platform.node()} cannot be used ({brief(error)}; {_software()})") from error
    if not right:
        raise Broken(f"the GPU of {platform.node()} cannot add ({_software()})")
    log.info("the net runs on %s", torch.cuda.get_device_name(device))


@contextmanager
def inference() -> Iterator[None]:
    """Run nets without gradients, in full float32 and by the same algorithms each time."""
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        yield
