"""What goes wrong on real machines: nothing is lost, and the next run ends in the same bytes.

Those that need no cluster always run, the full disk with the slow tests; all others with CXR_ILS_FAULTS=1
(`make test-faults`), for they take minutes. Out of memory and cancelled jobs are in test_slurm.py.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest

from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.tables import read_table
from cxr.workflow.folder import find_orphans
from slurm_runs import (
    START,
    TWO,
    finish,
    jobs_of,
    needs_slurm,
    needs_test_cluster,
    queued,
    run_name,
    start,
    start_asleep,
    wait_for,
    with_fault,
)
from tiny_hybridgnet import random_weights
from whole_runs import arrays, copy_repository, pair_lines_of_any_code

slow = pytest.mark.skipif("CXR_ILS_FAULTS" not in os.environ, reason="takes minutes: make test-faults")


def same_bytes(directory: Path, expected: Path) -> None:
    assert pair_lines_of_any_code(directory) == pair_lines_of_any_code(expected)
    assert arrays(directory) == arrays(expected)


def lose_a_bit(path: Path, place: int) -> None:
    """Flip a bit of a file as a file system does: nobody wrote."""
    data, kept = bytearray(path.read_bytes()), path.stat()
    data[place] ^= 0x10
    path.write_bytes(bytes(data))
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


@pytest.mark.slow
def test_damaged_shards_are_set_aside_and_made_anew(workflow_run, tmp_path):
    copy = Path(shutil.copytree(workflow_run, tmp_path / "copy", symlinks=True))
    table, masks, lines = (
        copy / f"results/{name}" for name in ("boxes/00.parquet", "anatomy/01.h5", "reports/02.jsonl")
    )
    with h5py.File(masks) as file:
        chunk = file["mask"].id.get_chunk_info(0)
    lose_a_bit(masks, chunk.byte_offset + chunk.size // 2)
    lose_a_bit(table, 40)
    lose_a_bit(lines, lines.read_bytes().index(b'"section_text": "') + 20)
    shutil.rmtree(copy / "results/masks")
    shutil.rmtree(copy / "results/dataset")
    done = snakemake(copy, "--keep-going", "results/masks/default/index.parquet", check=False)
    assert done.returncode == 1
    words = done.stderr + done.stdout
    for path in (table, masks, lines):  # one of each shard: the others went on
        told = f"{path.relative_to(copy)} is damaged and was renamed to {path.name}.damaged: run again"
        assert told in words
    assert "Traceback" not in words
    snakemake(copy, "dataset")
    same_bytes(copy, workflow_run)


ROOM = (6 << 18) + (384 << 10)
"""Bytes for what the slice's largest shard puts aside (6 frames of 512 x 512) and the files of the two others (281 kB),
never for its own (496 kB): it fails while it writes, and they do not.
"""


def times(place: Path) -> dict[str, int]:
    return {str(path.relative_to(place)): path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


SHARD_FILES = (
    "frames/{}.h5", "frames/{}.excluded.parquet", "frames/{}.corrected.parquet", "cohort/files_read/frames/{}.parquet",
)  # fmt: skip
"""What the stage frames writes for a shard."""


@pytest.mark.slow
def test_a_full_disk_stops_with_one_sentence_and_the_next_run_goes_on(workflow_run, tmp_path):
    copy = Path(shutil.copytree(workflow_run, tmp_path / "copy", symlinks=True, ignore=lambda *_: {"results"}))
    place = copy / "results"
    place.mkdir()

    def mount(*options: str) -> subprocess.CompletedProcess:
        return subprocess.run(["mount", *options, str(place)], capture_output=True, text=True, check=False)

    if mount("-t", "tmpfs", "-o", "size=500m", "tmpfs").returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        for done in ("phantom", "cohort", "benchmarks/phantom", "benchmarks/cohort", "records"):
            shutil.copytree(workflow_run / "results" / done, place / done)
        for later in ("frames", "reports"):
            shutil.rmtree(place / "cohort/files_read" / later)
        before = times(place)
        disk = os.statvfs(place)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        assert not mount("-o", f"remount,size={used + ROOM}").returncode
        stopped = snakemake(copy, "--keep-going", "frames", check=False)
        assert stopped.returncode == 1
        assert re.findall(r"Error in rule (\w+)", stopped.stderr) == ["frames_shard"]
        assert stopped.stderr.count("no space left on the device, or its quota is used up: free some space") == 1
        assert "Traceback" not in stopped.stderr
        after = times(place)
        assert {name: time for name, time in before.items() if not name.startswith("records/")}.items() <= after.items()
        # no half of a file, and no ledger that gives an image up
        new = {name for name in after.keys() - before.keys() if not name.startswith(("benchmarks/", "records/"))}
        assert new == {path.format(shard) for shard in ("00", "01") for path in SHARD_FILES}
        assert not mount("-o", "remount,size=500m").returncode
        snakemake(copy, "dataset", "--rerun-incomplete")
        assert {name: after[name] for name in new}.items() <= times(place).items()
        same_bytes(copy, workflow_run)
        ledger = "results/frames/excluded.parquet"
        assert (copy / ledger).read_bytes() == (workflow_run / ledger).read_bytes()
    finally:
        subprocess.run(["umount", str(place)], check=True)


HEARTBEAT = """

import functools
import os
import subprocess
import sys
import time

make_frames = run_shard


@functools.wraps(make_frames)
def run_shard(**arguments):
    folder = Path({folder!r})
    if not (folder / "processes").exists():
        place = str(folder / "beat")
        beat = f"import time\\nwhile True:\\n    open({{place!r}}, 'a').write('.')\\n    time.sleep(0.05)"
        worker = subprocess.Popen([sys.executable, "-c", beat], start_new_session=True)
        (folder / "processes").write_text(f"{{os.getpid()}} {{worker.pid}}")
        time.sleep(600)
    make_frames(**arguments)
"""
"""Makes the first job of frames write for ever, in a process of its own session."""


@pytest.mark.slow
def test_a_job_of_a_killed_run_ends_and_the_next_run_ends_in_the_same_bytes(workflow_run, tmp_path):
    root = copy_repository(tmp_path / "copy")
    with open(root / "scripts/cxr/imaging/frames/make_frames.py", "a") as module:
        module.write(HEARTBEAT.format(folder=str(tmp_path)))
    write_settings(tmp_path, SLICE)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--directory", str(tmp_path)]
    command += ["--configfile", str(tmp_path / "mine.yaml"), "--cores", "1", "frames"]
    with open(tmp_path / "run.log", "w") as log:
        run = subprocess.Popen(command, cwd=root, stdout=log, stderr=log, start_new_session=True)
    wait_for((tmp_path / "processes").exists, run)
    processes = [Path("/proc", number) for number in wait_for((tmp_path / "processes").read_text).split()]
    run.kill()  # it alone, as the kernel does to the largest process when memory is short
    run.wait()
    wait_for(lambda: not any(path.exists() for path in processes), seconds=20)
    before = files_of(tmp_path)
    time.sleep(1)
    assert files_of(tmp_path) == before
    snakemake(tmp_path, "--unlock", root=root)
    snakemake(tmp_path, "frames", root=root)
    expected = {key: value for key, value in arrays(workflow_run).items() if key[0] == "frames"}
    assert arrays(tmp_path) == expected


def files_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return {file: (size, time)} of a run's results and of what its jobs wrote elsewhere."""
    paths = [*(folder / "results").rglob("*"), folder / "beat"]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()}


def test_what_cannot_be_closed_on_a_full_disk_adds_no_words(tmp_path):
    """As HDF5's files, whose last bytes find no room when Python ends."""
    code = (
        "import sys; from cxr.base import jobs; jobs.start_logging(sys.argv[1])\n"
        "class File:\n    def __del__(self): raise RuntimeError('not closed')\n"
        "file = File()\nraise OSError({number}, 'write')"
    )
    for number, told in ((28, ["no space left"]), (2, ["not closed"])):
        done = subprocess.run(
            [sys.executable, "-c", code.format(number=number), str(tmp_path / "log")],
            env={"PYTHONPATH": str(ROOT / "scripts")}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert re.findall("no space left|not closed", done.stderr) == told


@slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
def test_a_job_out_of_time_is_tried_again_with_more(workflow_run, tmp_path):
    needs_slurm()
    run, _ = start_asleep(tmp_path, 600, "--set-resources", "frames_shard:runtime=attempt")
    finish(run, tmp_path)
    tries = [job for job in jobs_of(run_name(tmp_path)) if "frames" in job["comment"]]
    # a minute for each of the two shards in the group, then two
    assert [(job["state"], job["timelimitraw"]) for job in tries] == [("TIMEOUT", "2"), ("COMPLETED", "4")]
    same_bytes(tmp_path, workflow_run)


BROKEN = (
    "import onnxruntime, torch; error = torch.AcceleratorError('CUDA error: uncorrectable ECC error encountered'); "
    "onnxruntime.InferenceSession.run = lambda *given: (_ for _ in ()).throw(error)"
)
"""What a broken device raises from inside an engine's net, in the first job alone."""


@slow
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
def test_a_job_with_a_broken_device_fails_and_is_done_again(workflow_run, tmp_path):
    needs_slurm()
    root, marker = copy_repository(tmp_path / "copy"), tmp_path / "broke"
    with_fault(root, "organs_shard", BROKEN, marker)
    write_settings(tmp_path, TWO)
    words = finish(start(tmp_path, "organs", root=root), tmp_path)
    assert marker.exists()
    assert "organs: the device is broken, not an image (AcceleratorError: CUDA error: uncorrectable ECC" in words
    assert "Traceback (most recent call last)" in words  # of the job's log, on the screen
    states = [job["state"] for job in jobs_of(run_name(tmp_path)) if "organs" in job["comment"]]
    assert states == ["FAILED", "COMPLETED"]
    stages = ("frames", "organs")
    found, expected = arrays(tmp_path), arrays(workflow_run)
    assert found == {key: value for key, value in expected.items() if key[0] in stages}
    excluded = read_table(tmp_path / "results/organs/excluded.parquet")
    assert excluded.equals(read_table(workflow_run / "results/organs/excluded.parquet"))


@slow
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
def test_a_job_that_asked_for_a_gpu_and_sees_none_does_not_compute(tmp_path):
    """The test cluster's GPUs are plain files, so that a net's job is given one and torch sees none."""
    needs_slurm()
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch sees a GPU here")
    write_settings(tmp_path, TWO | {"organs": {"engine": "hybridgnet"}})
    (tmp_path / "weights").mkdir()
    torch.save(random_weights(), tmp_path / "weights/hybridgnet.pt")
    words = finish(start(tmp_path, "organs", "--retries", "0"), tmp_path, check=False)
    told = re.search(r"this job requested 1 GPU, but it sees no GPU on \S+ \((.*)\): repair the node", words)
    assert told, words[-3000:]
    assert f"torch {torch.__version__} was built without CUDA, no NVIDIA driver is loaded" in told[1]
    assert "or set compute.gpus to 0, or compute.device to cpu" in words
    assert not (tmp_path / "results/organs/excluded.parquet").exists()


@slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
def test_a_killed_run_is_not_started_beside_its_own_jobs(workflow_run, tmp_path):
    needs_slurm()
    run, root = start_asleep(tmp_path, 60)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    name = run_name(tmp_path)
    assert queued(name)  # the jobs go on
    assert find_orphans(tmp_path) == [name]
    assert find_orphans(tmp_path / "copy") == []
    snakemake(tmp_path, "--unlock", root=root)
    for again in (start(tmp_path, "dataset", root=root), None):
        if again is None:  # a run on this machine alone would write the same files too
            done = snakemake(tmp_path, "dataset", check=False, root=root)
            status, words = done.returncode, done.stderr
        else:
            words = finish(again, tmp_path, check=False)
            status = again.returncode
        assert status == 1
        assert f"end them with `scancel --name={name}`" in words
        assert "Traceback" not in words
    wait_for(lambda: not queued(name), seconds=300)
    assert find_orphans(tmp_path) == []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/frames/*.h5")}
    assert len(before) == 2
    finish(start(tmp_path, "dataset", root=root), tmp_path)
    same_bytes(tmp_path, workflow_run)
    # what the jobs finished without their master is not done again
    assert {path: path.stat().st_mtime_ns for path in before} == before


@slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
def test_an_interrupted_run_takes_its_jobs_with_it(workflow_run, tmp_path):
    needs_slurm()
    run, root = start_asleep(tmp_path, 600)
    os.kill(run.pid, signal.SIGINT)
    finish(run, tmp_path, check=False)
    assert run.returncode == 1
    assert queued(run_name(tmp_path)) == {}
    finish(start(tmp_path, "dataset", root=root), tmp_path)
    same_bytes(tmp_path, workflow_run)


@slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd"])
def test_a_daemon_that_is_away_for_a_minute_loses_nothing(workflow_run, tmp_path, daemon):
    needs_test_cluster()
    run, _ = start_asleep(tmp_path, 30)
    try:
        # as a service is stopped: killed outright it may forget jobs of its last seconds and give their numbers again
        subprocess.run(["pkill", "-TERM", "-x", daemon], check=True)
        time.sleep(60)
        assert run.poll() is None
    finally:
        subprocess.run([str(START)], capture_output=True, check=True)
    finish(run, tmp_path)
    # what had to ask the controller just then failed, and was tried again
    last = {job["comment"]: job["state"] for job in jobs_of(run_name(tmp_path)) if job["comment"]}
    assert set(last.values()) == {"COMPLETED"}
    same_bytes(tmp_path, workflow_run)


def lose_the_node(_: str) -> None:
    """The controller takes the only node for lost, and ends its jobs; it comes back by itself or is brought back."""
    update = ["scontrol", "update", "nodename=ALL", "reason=test"]
    subprocess.run([*update, "state=down"], check=True)
    subprocess.run([*update, "state=resume"], check=False)


def preempt(job: str) -> None:
    """What SLURM does to a job whose place a more important one wants."""
    subprocess.run(["scontrol", "requeue", job], check=True)


@slow
@pytest.mark.xdist_group("slurm")  # one after the other: one of them stops the cluster
@pytest.mark.parametrize(("loss", "state"), [(lose_the_node, "NODE_FAIL"), (preempt, "REQUEUED")])
def test_a_job_that_loses_its_node_is_done_again(workflow_run, tmp_path, loss, state):
    needs_test_cluster()
    run, _ = start_asleep(tmp_path, 600)
    (job,) = [job for job, work in queued(run_name(tmp_path)).items() if "frames" in work]
    loss(job)
    words = finish(run, tmp_path)
    tries = [entry for entry in jobs_of(run_name(tmp_path)) if "frames" in entry["comment"]]
    assert [(entry["jobid"], entry["state"], entry["reqmem"]) for entry in tries] == [
        (job, state, "4000M"), (job, "COMPLETED", "4000M")
    ]  # fmt: skip
    assert "Trying to restart" not in words  # none of our own tries
    same_bytes(tmp_path, workflow_run)
