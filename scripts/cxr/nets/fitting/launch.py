"""Running a training in several processes on one node, and one of these processes."""

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torch import distributed

from cxr.base.atomic import atomic
from cxr.base.errors import StoreError, UserError, traceback_of
from cxr.base.paths import SCRIPTS
from cxr.nets.fitting.stopping import heeded

log = logging.getLogger("cxr")
FAULT = "fault"
"""File of a process's mistake of the user's, beside the job's file."""
SILENCE = re.compile(r"Watchdog caught collective operation timeout|Timed out waiting|timed out after|Timeout\(ms\)=")
"""Messages of NCCL and gloo when a process does not answer."""


def launch(worker: str, job: Path, processes: int, time_to_stop: int, python: str = sys.executable) -> None:
    """Run the module ``worker`` with the file ``job`` in separate processes, and copy their reports into the log.

    Raises UserError for a mistake that a process reports (:func:`serve`), or one that does not answer any more.
    """
    fault = job.with_name(FAULT)
    fault.unlink(missing_ok=True)
    command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [f"--shutdown-timeout={time_to_stop}"]
    command += ["-m", worker, str(job)]
    paths = os.pathsep.join(filter(None, (str(SCRIPTS), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent,
    ) as launched:
        silence = ""
        with heeded(launched.terminate):  # the launcher passes the signal on
            for line in launched.stdout:
                silence = silence or (line.strip() if SILENCE.search(line) else "")
                if not fault.is_file():  # after a fault, the launcher only reports at length that a process ended
                    log.info("%s", line.rstrip())
    if fault.is_file():
        raise UserError(fault.read_text(encoding="utf-8"))
    if launched.returncode and silence:
        raise UserError(
            f"training: one of its {processes} processes does not answer any more ({silence[:200]}): its GPU or its "
            "connection hangs; run it again, best on another node, and it resumes at its last checkpoint"
        )
    if launched.returncode:
        raise RuntimeError(f"a process of the training ended with code {launched.returncode}")


def _end_with_parent() -> None:
    """Make the kernel end this process when its parent dies, so that two trainings never write into one folder."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def serve(job: Path, work: Callable[[str], None]) -> None:
    """Do one process's share: ``work`` gets the text of the file ``job``. A user's mistake is left in a file."""
    rank = int(os.environ["RANK"])
    # the stage reads this output and copies it into its own log
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, format=f"process {rank}: %(message)s", stream=sys.stdout, force=True)
    sys.excepthook = lambda kind, error, trace: print(traceback_of(error), flush=True)
    try:
        work(job.read_text(encoding="utf-8"))
    except (UserError, StoreError) as error:
        with atomic(job.with_name(FAULT)) as temporary:
            temporary.write_text(str(error), encoding="utf-8")
        sys.exit(1)
    if distributed.is_initialized():
        distributed.destroy_process_group()
