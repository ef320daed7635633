"""A real vLLM on the CPU for the tests of `make vllm`: its environment variables, and a server."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IN_THE_JOB = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "2",
}
SECONDS_TO_START = 240


@contextmanager
def environment() -> Iterator[None]:
    """Tell vLLM to run on the CPU: in this process, and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in IN_THE_JOB.items():
            patch.setenv(name, value)
        yield


@contextmanager
def served(folder: Path, log: Path, dtype: str = "bfloat16", context: int = 0) -> Iterator[str]:
    """Serve the model of a folder as ``vllm serve`` does; yields the address once it answers.

    ``log``: its words; ``context``: in tokens, 0 for the model's own.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--port", address.removesuffix("/v1").rpartition(":")[2], "--dtype", dtype, "--enforce-eager"]
    command += ["--max-model-len", str(context)] if context else []
    apart = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with open(log, "w") as words:
        server = subprocess.Popen(command, stdout=words, stderr=subprocess.STDOUT, env=apart)
    try:
        _wait(server, address, log)
        yield address
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen, address: str, log: Path) -> None:
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until:
        assert server.poll() is None, f"the server stopped:\n{log.read_text()[-3000:]}"
        try:
            urllib.request.urlopen(f"{address}/models", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(2)
        else:
            return
    raise AssertionError(f"the server did not start:\n{log.read_text()[-3000:]}")
