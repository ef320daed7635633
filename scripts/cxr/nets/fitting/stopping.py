"""Handle the signals that stop a training: SIGURG before SLURM's time limit, SIGTERM if somebody ends the process.

SLURM sends its warning to every process of the job's step. SIGTERM would end the shell above a training, and SLURM
kills the rest of a step whose first process ended. SIGURG is ignored by processes without a handler for it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WARNINGS = (signal.SIGURG, signal.SIGTERM)
"""The first is what :func:`cxr.workflow.jobs.warned` asks SLURM for."""


@contextmanager
def heeded(pass_on: Callable[[], object] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Catch warnings inside this context; yield a function that tells whether one came. ``pass_on`` is called then.

    Only a process's main thread can catch signals; in another thread no warning is ever seen.
    """
    received_signals: list[int] = []

    def heed(number: int, _: object) -> None:
        received_signals.append(number)
        pass_on()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {warning: signal.signal(warning, heed) for warning in WARNINGS}
    try:
        yield lambda: bool(received_signals)
    finally:
        for warning, handler in before.items():
            signal.signal(warning, handler)
