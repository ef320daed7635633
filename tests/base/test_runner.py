"""A job ends with the Snakemake that started it, and takes its own processes with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT
from cxr.base import runner

pytestmark = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells about processes")

JOB = """
import subprocess, sys, time
from cxr.base.runner import end_with_runner
end_with_runner()
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
parent = [sys.executable, "-c", f"import subprocess, time; subprocess.Popen({sleeper!r}); time.sleep(600)"]
subprocess.Popen(sleeper, start_new_session=True)
subprocess.Popen(parent)
open(sys.argv[1], "w").close()
time.sleep(600)
"""
"""A job with a worker in a session of its own, and a launcher with a worker below it."""
SNAKEMAKE = """
import subprocess, sys, time
from cxr.base.runner import announce_runner
announce_runner()
subprocess.Popen(["bash", "-c", f"set -euo pipefail; {sys.executable} {sys.argv[1]} {sys.argv[2]}; true"])
time.sleep(600)
"""
"""What starts jobs as Snakemake does: through a shell."""


def wait_for(condition, seconds: float = 30) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return condition()


def is_running(process: int) -> bool:
    return bool(runner._identity(process))


@pytest.fixture
def started(tmp_path):
    """Return the stand-in for Snakemake and the processes below it, once all are there."""
    (tmp_path / "job.py").write_text(JOB)
    process = subprocess.Popen(
        [sys.executable, "-c", SNAKEMAKE, str(tmp_path / "job.py"), str(tmp_path / "ready")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
    )
    # the shell, the job, its worker, its launcher, the launcher's worker
    assert wait_for(lambda: (tmp_path / "ready").exists() and len(runner.descendants(process.pid)) == 5)
    below = runner.descendants(process.pid)
    yield process, below
    for each in [process.pid, *below]:
        if is_running(each):
            os.kill(each, signal.SIGKILL)
    process.wait()


def test_a_killed_snakemake_takes_its_job_and_all_below_it_along(started):
    process, below = started
    process.kill()  # it stays a zombie: nobody has looked at it yet
    assert wait_for(lambda: not any(map(is_running, below)))


def test_a_job_works_on_while_its_snakemake_runs(started):
    process, below = started
    time.sleep(3 * runner.INTERVAL_S)
    assert is_running(process.pid)
    assert all(map(is_running, below))


def run_job(announced: str | None) -> int:
    """Return the exit status of a job that works for three looks at its Snakemake."""
    code = f"import time; from cxr.base.runner import *; end_with_runner(); time.sleep({3 * runner.INTERVAL_S})"
    environment = {key: value for key, value in os.environ.items() if key != runner.RUNNER}
    environment |= {"PYTHONPATH": str(ROOT / "scripts")} | ({runner.RUNNER: announced} if announced is not None else {})
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode


@pytest.mark.slow
def test_what_has_no_snakemake_that_it_could_see_is_left_alone():
    assert run_job(None) == 0
    assert run_job("") == 0
    # of another namespace, as in a container that has processes of its own; of another node
    boot, namespace = runner._namespace().split("/")
    assert run_job(f"{boot}/pid:[1] {os.getpid()} 1") == 0
    assert run_job(f"another-boot/{namespace} {os.getpid()} 1") == 0
    assert run_job(runner._identity(os.getpid())) == 0


def test_a_job_whose_snakemake_is_gone_before_it_starts_ends():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert run_job(f"{runner._namespace()} {ended.pid} 1") == -signal.SIGKILL
    # the number is used again by another process, which started at another time
    assert run_job(f"{runner._namespace()} {os.getpid()} 1") == -signal.SIGKILL


def test_a_machine_that_cannot_look_ends_no_job(monkeypatch):
    identity = runner._identity(os.getpid())

    def limited(*_: object, **__: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", limited)
    assert not runner._has_ended(os.getpid(), identity)
    assert runner.descendants(os.getpid()) == []
    monkeypatch.undo()
    assert not runner._has_ended(os.getpid(), identity)
    assert runner._has_ended(os.getpid(), identity + "0")
