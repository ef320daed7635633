"""Worker processes that may crash: started again, and the image at fault is named."""

import os
import pickle
import subprocess
import sys
import threading

from ils.core.places import SCRIPTS
from ils.frames import worker


class Crashed(Exception):
    """The worker died or was stopped while it worked on an image."""


class Worker:
    """One worker process, started when it is first asked."""

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
        try:
            self._send(process, self._options)
            if pickle.load(process.stdout) != "ready":
                raise RuntimeError("the decoder process answers nonsense")
        except (EOFError, OSError) as error:
            process.kill()
            process.wait()
            raise RuntimeError("the decoder process does not start; its message is above") from error
        return process

    @staticmethod
    def _send(process: subprocess.Popen, item: object) -> None:
        pickle.dump(item, process.stdin)
        process.stdin.flush()

    def ask(self, path: str, seconds: float) -> tuple:
        """Return the worker's answer for one file. Raises :class:`Crashed` if it dies or takes longer."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            self._send(process, path)
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


class Workers:
    """One worker process per thread that asks. Use inside ``with``."""

    def __init__(self, options: dict, seconds: float):
        self._options, self._seconds = options, seconds
        self._local = threading.local()
        self._all: list[Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._all:
            each.close()

    def ask(self, path: str) -> tuple:
        """Return ``("frame", …)`` or ``("rejected", reason, detail)`` for one file (see ``worker.prepare``).

        A crash is tried once more in a fresh process, in case another program was to blame. Raises OSError where it was
        the machine that could not read the file.
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
            if answer[0] == "failed":
                raise OSError(*answer[1:])
            return answer
        return "rejected", "undecodable", "the decoder crashed or did not end"
