"""Decoding images in worker processes. A process that crashes is restarted, and the image at fault is excluded."""

import os
import pickle
import platform
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import cv2
import numpy as np

from cxr.base.faults import Broken
from cxr.base.paths import SCRIPTS
from cxr.imaging.frames import worker


class Crashed(Exception):
    """The worker process died, or was stopped, while it processed an image."""


class Worker:
    """A process that decodes image files (:mod:`cxr.imaging.frames.worker`), started at the first request."""

    _process: subprocess.Popen | None = None
    _pipe: Connection

    def __init__(self, options: dict):
        self._options = options

    def _start(self) -> None:
        path = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._pipe, pipe_end = Pipe()
        with pipe_end:
            number = pipe_end.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, str(number)], stdin=subprocess.DEVNULL, pass_fds=[number],
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        cause = None
        try:
            self._pipe.send(self._options)
            problem = self._pipe.recv()
        except (EOFError, OSError) as error:
            problem, cause = "the decoder process does not start: see its message above", error
        if problem:
            self.close()
            raise Broken(f"frames: {problem}") from cause

    def ask(self, path: str, seconds: float) -> tuple | Exception:
        """Return the worker's answer for a file. Raises Crashed if the worker dies or takes more than ``seconds``."""
        if self._process is None:
            self._start()
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            self._pipe.send(path)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        self.close()
        raise Crashed

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._pipe.close()
            self._process = None


class Workers:
    """Worker processes, one for each thread that calls :meth:`ask`, to be used as a context manager."""

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
        """Return the worker's answer for a file (see ``worker.prepare``).

        After a crash the file is tried again in a new process, because another program may be at fault. After a second
        crash a test image is tried. Raises Broken if the worker crashes on this image too, or reports an error that no
        file caused. Raises OSError if the machine cannot read the file.
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
            if isinstance(answer, Exception):
                raise answer
            return answer
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(cv2.imencode(".png", np.arange(64 * 64, dtype=np.uint16).reshape(64, 64))[1].tobytes())
            file.flush()
            try:
                mine.ask(file.name, self._seconds)
            except Crashed:
                raise Broken(
                    f"frames: the decoder process crashes on a valid image too, on {platform.node()}: reinstall its "
                    "libraries, give the job more memory, or run on another machine"
                ) from None
        return "failed", "undecodable", "the decoder crashed or did not end"
