"""Run a training in several processes on one node, and handle the signals that stop a training.

SLURM announces its time limit with SIGURG to every process of the job's step; SIGTERM ends a process. SIGTERM cannot
serve as the announcement: it would end the shell above a training, and SLURM kills the rest of a step whose first
process ended. Processes without a handler ignore SIGURG.
"""

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import distributed

from cxr.base.atomic import atomic_file
from cxr.base.errors import StoreError, UserError, traceback_of
from cxr.base.paths import SCRIPTS

log = logging.getLogger("cxr")
FAULT_FILE = "fault"
"""File beside the job's file in which a process reports an error that the user must fix."""
SILENCE_PATTERN = re.compile(
    r"Watchdog caught collective operation timeout|Timed out waiting|timed out after|Timeout\(ms\)="
)
"""Messages of NCCL and gloo when a process does not answer."""
WARNING_SIGNALS = (signal.SIGURG, signal.SIGTERM)
"""The first is the one that :func:`cxr.workflow.jobs.warning_options` requests from SLURM."""


def launch(worker: str, job: Path, processes: int, time_to_stop: int, python: str = sys.executable) -> None:
    """Run the module ``worker`` with the file ``job`` in ``processes`` processes, and copy their output into the log.

    Raises UserError if a process reports one (:func:`run_process`) or no longer answers, and RuntimeError if it ends
    otherwise.
    """
    fault = job.with_name(FAULT_FILE)
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
        with catch_warning_signals(launched.terminate):  # the launcher passes the signal on
            for line in launched.stdout or ():
                silence = silence or (line.strip() if SILENCE_PATTERN.search(line) else "")
                if not fault.is_file():  # after a fault, the launcher only reports at length that a process ended
                    log.info("%s", line.rstrip())
    if fault.is_file():
        raise UserError(fault.read_text(encoding="utf-8"))
    if launched.returncode and silence:
        raise UserError(
            f"training: one of its {processes} processes no longer answers ({silence[:200]}): its GPU or its "
            "connection hangs; run it again, if possible on another node: it resumes from its last checkpoint"
        )
    if launched.returncode:
        raise RuntimeError(f"a process of the training ended with code {launched.returncode}")


def _end_with_parent() -> None:
    """Make the kernel end this process when its parent dies, so that two trainings never write into one folder."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_process(job: Path, work: Callable[[str], None]) -> None:
    """Run ``work`` on the text of the file ``job`` in one process of a training; write a UserError into a file."""
    rank = int(os.environ["RANK"])
    # the launching job copies this output into its own log
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, format=f"process {rank}: %(message)s", stream=sys.stdout, force=True)
    sys.excepthook = lambda kind, error, trace: print(traceback_of(error), flush=True)
    try:
        work(job.read_text(encoding="utf-8"))
    except (UserError, StoreError) as error:
        with atomic_file(job.with_name(FAULT_FILE)) as temporary:
            temporary.write_text(str(error), encoding="utf-8")
        sys.exit(1)
    if distributed.is_initialized():
        distributed.destroy_process_group()


@contextmanager
def catch_warning_signals(on_signal: Callable[[], object] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Catch :data:`WARNING_SIGNALS` inside this context; yield a function that returns whether one was received.

    Each signal also calls ``on_signal``. Only a process's main thread can catch signals; in other threads the yielded
    function always returns False.
    """
    received_signals: list[int] = []

    def handle_signal(number: int, _: object) -> None:
        received_signals.append(number)
        on_signal()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous_handlers = {warning: signal.signal(warning, handle_signal) for warning in WARNING_SIGNALS}
    try:
        yield lambda: bool(received_signals)
    finally:
        for warning, handler in previous_handlers.items():
            signal.signal(warning, handler)
