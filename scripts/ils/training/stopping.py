"""Being told to stop (SIGTERM): SLURM does so at a job's time limit, some time before it kills."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heeded(pass_on: Callable[[], object] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Within, a SIGTERM ends nothing; yield what tells whether one came. ``pass_on`` is called when it comes.

    Only a process's main thread can heed signals: elsewhere none ever comes.
    """
    told: list[int] = []

    def heed(number: int, _: object) -> None:
        told.append(number)
        pass_on()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGTERM, heed)
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGTERM, before)
