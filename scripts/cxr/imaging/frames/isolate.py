"""Decoding in worker processes that may crash: they are restarted, and the image at fault is excluded."""

import os
import pickle
import platform
import subprocess
import sys
import tempfile
import threading

import cv2
import numpy as np

from cxr.base.faults import Broken
from cxr.base.paths import SCRIPTS
from cxr.imaging.frames import worker


class Crashed(Exception):
    """The worker died, or was stopped, while it processed an image."""


class Worker:
    """One worker process, started at the first request."""

    def __init__(self, options: dict):
        self._options = options
        self._process: subprocess.Popen | None = None

    def _start(self) -> subprocess.Popen:
        path = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        cause = None
        try:
            _send(process, self._options)
            problem = pickle.load(process.stdout)
        except (EOFError, OSError) as error:
            problem, cause = "the decoder process does not start; its message is above", error
        if problem:
            process.kill()
            process.wait()
            raise Broken(f"frames: {problem}") from cause
        return process

    def ask(self, path: str, seconds: float) -> tuple:
        """Return the worker's answer for one file. Raises :class:`Crashed` if it dies or takes longer."""
        process = self._process = self._process or self._start()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            _send(process, path)
            return pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            raise Crashed from None
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stop the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def _send(process: subprocess.Popen, item: object) -> None:
    pickle.dump(item, process.stdin)
    process.stdin.flush()


class Workers:
    """One worker process per thread that asks. Use inside ``with``."""

    def __init__(self, options: dict, seconds: float):
        self._options, self._seconds = options, seconds
        self._local = threading.local()
        self._all: list[Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker_of_thread in self._all:
            worker_of_thread.close()

    def ask(self, path: str) -> tuple:
        """Return ``("frame", …)`` or ``(outcome, reason, detail)`` for one file (see ``worker.prepare``).

        ``outcome`` is "rejected" for a known fault of the file, "failed" for an error that points to the machine if it
        repeats from file to file. After a crash the file is tried once more in a new process, because another program
        may be at fault; then a valid image is tried. Raises Broken if that crashes too, or if the worker reports an
        error that no file caused, and OSError if the machine cannot read the file.
        """
        mine = getattr(self._local, "worker", None)
        if mine is None:
            mine = self._local.worker = Worker(self._options)
            self._all.append(mine)
        for _ in range(2):
            try:
                answer = mine.ask(path, self._seconds)
            except Crashed:
                continue
            if answer[0] == "broken":
                raise Broken(f"frames: {answer[1]}, on {platform.node()}")
            if answer[0] == "machine":
                raise OSError(*answer[1:])
            return answer
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(cv2.imencode(".png", np.arange(64 * 64, dtype=np.uint16).reshape(64, 64))[1].tobytes())
            file.flush()
            try:
                mine.ask(file.name, self._seconds)
            except Crashed:
                raise Broken(
                    f"frames: the decoder process dies over a sound picture too, on {platform.node()}: its libraries "
                    "or this machine are broken, or it has less memory than a decoder needs"
                ) from None
        return "failed", "undecodable", "the decoder crashed or did not end"
