"""Run a training job in one process, or in one per GPU of a node, and handle the signals that stop a training.

SLURM sends SIGURG to every process of the job's step when the time limit is near; SIGTERM ends a process. SIGTERM
cannot be the warning: it would end the shell that runs a training, and SLURM kills all processes of a step whose first
process has ended. Processes without a handler ignore SIGURG.
"""

import ctypes
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import distributed

from cxr.base.atomic import atomic_file
from cxr.base.errors import StoreError, UserError, traceback_of
from cxr.base.paths import SCRIPTS
from cxr.base.unfinished_work import describe_files, prepare_folder
from cxr.nets.devices import count_gpus
from cxr.nets.microbatch import SharedBatch

log = logging.getLogger("cxr")
FAULT_FILE = "fault"  # file, next to the job's file, in which a process reports a user's mistake
SILENCE_PATTERN = re.compile(
    r"Watchdog caught collective operation timeout|Timed out waiting|timed out after|Timeout\(ms\)="
)
"""Pattern of the messages of NCCL and gloo about a process that does not answer."""
WARNING_SIGNALS = (signal.SIGURG, signal.SIGTERM)  # SLURM sends the first (workflow.jobs.warning_options)

Train = Callable[["TrainingJob", Callable[[], bool]], None]
"""Function that does the work of one process of a training. It calls its second argument to ask whether to stop."""
READ_SUFFIXES = (".jsonl", ".tsv", ".parquet")
"""Endings of inputs whose content decides whether a training can be resumed. Of other inputs, only the size does."""


@dataclass(frozen=True)
class TrainingJob:
    """A training described by built-in types only, so that it can be passed to other processes. ``inputs``,
    ``outputs``: {name: path or paths}. ``attrs``: facts such as ``code_digest``. ``compute``: settings without effect
    on results. ``folder``: folder of checkpoints."""

    inputs: dict
    outputs: dict
    options: dict
    attrs: dict
    compute: dict
    folder: str
    threads: int = 1

    def prepare_folder(self) -> None:
        """Create the folder of checkpoints. Remove checkpoints that were made with other settings, inputs or code."""
        facts = [self.options, self.attrs.get("code_digest", "")]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for name, value in sorted(self.inputs.items()):
            for path in map(Path, filter(None, [value] if isinstance(value, str) else value)):
                content = path.read_bytes() if path.suffix in READ_SUFFIXES else describe_files(path)
                digest.update(f"{name} {path.name}\n".encode() + content)
        warning = f"{self.folder} holds a checkpoint made with other settings, inputs or code: the training restarts"
        prepare_folder(Path(self.folder), digest.hexdigest(), pattern="checkpoint.*", warning=warning)

    def run(self, worker: str, recipe: SharedBatch, train: Train) -> None:
        """Run ``train`` here or, if the options ``recipe`` say ``deepspeed``, the module ``worker`` on each GPU."""
        if recipe.runner == "deepspeed":
            num_requested = self.compute.get("asked", self.compute["gpus"])
            processes = max(1, count_gpus(self.compute["device"], num_requested))
            shared = recipe.shared(processes)
            shared.micro_batches_per_step(processes)  # raises before any process starts
            if (size := shared.micro_batch) != recipe.micro_batch:
                log.info("micro-batches of %d: %d GPUs share a batch of %d", size, processes, shared.batch)
            self._launch(worker, processes)
        else:
            self.run_here(train)
        shutil.rmtree(self.folder)

    def run_here(self, train: Train) -> None:
        """Run ``train`` in this process. On a stop signal, it writes a checkpoint and ends."""
        with catch_warning_signals() as should_stop:
            train(self, should_stop)

    def _launch(self, worker: str, processes: int) -> None:
        """Run the module ``worker`` in ``processes`` processes, and log their output. Raises a process's UserError."""
        path, fault = Path(self.folder, "job.json"), Path(self.folder, FAULT_FILE)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        fault.unlink(missing_ok=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command += [f"--shutdown-timeout={self.compute['time_to_stop']}", "-m", worker, str(path)]
        paths = os.pathsep.join(filter(None, (str(SCRIPTS), os.environ.get("PYTHONPATH"))))
        output: dict = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        environment = os.environ | {"PYTHONPATH": paths}
        with subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent, **output) as launched:
            silence = ""
            with catch_warning_signals(launched.terminate):  # the launcher passes the signal on
                for line in launched.stdout or ():
                    silence = silence or (line.strip() if SILENCE_PATTERN.search(line) else "")
                    if not fault.is_file():  # after a fault, the launcher only prints long reports of the process's end
                        log.info("%s", line.rstrip())
        if fault.is_file():
            raise UserError(fault.read_text(encoding="utf-8"))
        if launched.returncode and silence:
            raise UserError(
                f"training: one of its {processes} processes no longer answers ({silence[:200]}): its GPU or its "
                "connection hangs; run the training again, best on another node: it resumes from the last checkpoint"
            )
        if launched.returncode:
            raise RuntimeError(f"a process of the training ended with code {launched.returncode}: see its log above")


def run_worker(train: Train) -> None:
    """Run ``train`` in one process of a training. The first command-line argument is the file of the TrainingJob."""
    run_process(Path(sys.argv[1]), lambda text: TrainingJob(**json.loads(text)).run_here(train))


def _end_with_parent() -> None:
    """Make the kernel end this process when its parent dies, so that two trainings never write to the same folder."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_process(job: Path, work: Callable[[str], None]) -> None:
    """Run ``work`` on the text of the file ``job`` in one process of a training. Write a UserError to FAULT_FILE."""
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
    """Catch :data:`WARNING_SIGNALS` inside this context. Yield a function that returns whether one was received. Each
    signal also calls ``on_signal``. Outside the main thread, no signal is caught, and the function returns False."""
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
