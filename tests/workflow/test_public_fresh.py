"""Files that change, copied and left-over results, killed runs: what is out of date runs again, and nothing else."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from cohort_runs import of
from conftest import ROOT, snakemake, write_settings
from cxr.base.seeds import shard_of
from cxr.base.tables import read_lines
from input_doors import png_of
from planner import Job, jobs_of

pytestmark = pytest.mark.slow  # a run of the workflow, which all tests change and run again

SHARDS = 4
TARGETS = ("frames", "reports")
SETTINGS = {"cohort": {"source": "manifest", "manifest": "manifest.csv", "shards": SHARDS}}
STUDIES = 8
SHARD_OF = {number: f"{shard_of(f'p{number}', SHARDS):02}" for number in range(STUDIES)}
BEFORE = "FINDINGS: There is a right pleural effusion. No pneumothorax.\n"
AFTER = "FINDINGS: The lungs are clear. There is no pleural effusion.\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run of :data:`TARGETS` on eight studies. Tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    header = "subject_id,study_id,image_id,image_path,report_path,view"
    rows = [f"p{n},s{n},i{n},{n}.dcm,r{n}.txt," for n in range(STUDIES)]
    for number in range(STUDIES):
        (folder / f"{number}.dcm").write_bytes(of(SeriesNumber=number + 1))
        if number < STUDIES - 1:  # the last one's report comes later
            (folder / f"r{number}.txt").write_text(BEFORE)
    (folder / "manifest.csv").write_text("\n".join([header, *rows]) + "\n")
    snakemake(write_settings(folder, SETTINGS), *TARGETS)
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A copy of the finished run with its records and times."""
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def planned(folder: Path, *targets: str) -> tuple[list[Job], str]:
    """Return the jobs of a dry run, targets left out, and all that it says."""
    done = snakemake(folder, "--dry-run", *(targets or TARGETS))
    printed = done.stdout + done.stderr
    return [job for job in jobs_of(printed) if job.rule not in TARGETS], printed


def rewrite(path: Path, data: str | bytes, age_s: float = 0) -> None:
    """Write a file anew, with a time in the past or the future."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    moment = time.time() - age_s
    os.utime(path, (moment, moment))


def shards_of(jobs: list[Job], start: str) -> set[str]:
    return {job.wildcards.get("shard", "") for job in jobs if job.rule.startswith(start) and job.wildcards}


# ---------------------------------------------------------------------------------------- files that change


def test_a_corrected_report_runs_its_shard_of_the_reports_alone(copied):
    rewrite(copied / "r0.txt", AFTER)
    jobs, _ = planned(copied)
    assert shards_of(jobs, "reports") == {SHARD_OF[0]}
    assert not [job.rule for job in jobs if job.rule.startswith(("frames", "cohort"))]


def test_a_corrected_report_of_the_same_length_and_an_older_time_is_noticed(copied):
    rewrite(copied / "r1.txt", BEFORE.replace("right", "left ").replace("left  ", "left "), age_s=3 * 86_400)
    jobs, _ = planned(copied)
    assert shards_of(jobs, "reports") == {SHARD_OF[1]}


def test_a_corrected_report_is_told_by_number_and_not_by_words(copied):
    rewrite(copied / "r2.txt", AFTER)
    rewrite(copied / "r3.txt", AFTER)
    _, printed = planned(copied)
    assert re.search(r"\b2 reports\b[^\n]*changed", printed)
    assert "lungs are clear" not in printed


def test_a_corrected_report_is_read_and_other_shards_stay(copied):
    rewrite(copied / "r4.txt", AFTER)
    before = {path: path.stat().st_mtime_ns for path in copied.glob("results/*/*") if path.suffix in (".h5", ".jsonl")}
    snakemake(copied, *TARGETS)
    changed = {
        path.relative_to(copied).as_posix() for path, moment in before.items() if path.stat().st_mtime_ns != moment
    }
    assert changed == {f"results/reports/{SHARD_OF[4]}.jsonl"}
    (line,) = (line for line in read_lines(copied / f"results/reports/{SHARD_OF[4]}.jsonl") if line["study_id"] == "s4")
    assert "lungs are clear" in line["section_text"]
    assert planned(copied)[0] == []


def test_a_touched_report_runs_nothing(copied):
    rewrite(copied / "r0.txt", BEFORE)
    rewrite(copied / "r5.txt", BEFORE, age_s=-60)
    assert planned(copied)[0] == []


def test_a_report_that_arrives_is_read_or_named(copied):
    rewrite(copied / f"r{STUDIES - 1}.txt", AFTER)
    jobs, printed = planned(copied)
    assert jobs or re.search(r"report[^\n]*(new|arrived|appeared|now|changed|snakemake cohort)", printed)


def test_a_report_that_is_deleted_is_noticed(copied):
    (copied / "r6.txt").unlink()
    jobs, _ = planned(copied)
    assert shards_of(jobs, "reports") == {SHARD_OF[6]} or [job for job in jobs if job.rule.startswith("cohort")]


def test_an_image_that_is_replaced_runs_its_shard_of_the_frames(copied):
    """The cohort reads its header, so that it is made first; a dry run alone cannot tell that all else stays."""
    rewrite(copied / "3.dcm", of(SeriesNumber=4, PhotometricInterpretation="MONOCHROME1"))
    before = {path: path.stat().st_mtime_ns for path in copied.glob("results/*/[0-9]*")}
    snakemake(copied, *TARGETS)
    changed = {path.relative_to(copied).as_posix() for path, moment in before.items()
               if path.stat().st_mtime_ns != moment and not path.is_relative_to(copied / "results/cohort")}  # fmt: skip
    assert {path.partition(".")[0] for path in changed} == {f"results/frames/{SHARD_OF[3]}"}


def test_a_study_is_added_by_a_command_with_relative_paths(copied):
    with open(copied / "manifest.csv", "a") as manifest:
        manifest.write(f"p{STUDIES},s{STUDIES},i{STUDIES},{STUDIES}.dcm,r0.txt,\n")
    (copied / f"{STUDIES}.dcm").write_bytes(of(SeriesNumber=STUDIES + 1))
    before = {path: path.stat().st_mtime_ns for path in copied.glob("results/frames/[0-9]*.h5")}
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "1", *TARGETS]
    command += ["--directory", copied.name, "--configfile", f"{copied.name}/mine.yaml"]
    done = subprocess.run(command, cwd=copied.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the cohort has changed: it is made first, then all other jobs are planned") == 1
    shard = f"{shard_of(f'p{STUDIES}', SHARDS):02}"
    changed = {path.stem for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert {shard} <= changed < {path.stem for path in before}  # that of a subject whose split moves too


def test_clean_old_beside_another_target_is_refused(copied):
    done = snakemake(copied, "--dry-run", "clean_old", "frames", check=False)
    assert done.returncode == 1
    assert "clean_old only removes files: run it without other targets" in done.stderr


def test_a_touched_image_runs_nothing(copied):
    rewrite(copied / "5.dcm", of(SeriesNumber=6), age_s=-60)
    assert planned(copied)[0] == []


# ------------------------------------------------------------------------------------------- copied results


def without_records(finished: Path, folder: Path, keep_times: bool) -> Path:
    """Copy a run without Snakemake's records, as `cp` and archives do."""
    shutil.copytree(
        finished, folder, ignore=shutil.ignore_patterns(".snakemake"),
        copy_function=shutil.copy2 if keep_times else shutil.copy,
    )  # fmt: skip
    return folder


def test_results_without_records_and_other_settings_are_out_of_date_or_stop_the_run(finished, tmp_path):
    folder = without_records(finished, tmp_path / "run", keep_times=True)
    write_settings(folder, SETTINGS | {"frames": {"window": "percentile"}})
    done = snakemake(folder, "--dry-run", *TARGETS, check=False)
    printed = done.stdout + done.stderr
    if done.returncode == 0:
        assert shards_of(jobs_of(printed), "frames") == set(SHARD_OF.values()) | {f"{n:02}" for n in range(SHARDS)}
    else:
        assert "frames" in printed
        assert "Traceback" not in printed


def test_results_without_records_and_other_settings_of_the_reports_are_out_of_date(finished, tmp_path):
    folder = without_records(finished, tmp_path / "run", keep_times=True)
    write_settings(folder, SETTINGS | {"reports": {"effusion_without_side": "none"}})
    done = snakemake(folder, "--dry-run", *TARGETS, check=False)
    printed = done.stdout + done.stderr
    if done.returncode == 0:
        assert len(shards_of(jobs_of(printed), "reports")) == SHARDS
        assert not shards_of(jobs_of(printed), "frames")
    else:
        assert "reports" in printed
        assert "Traceback" not in printed


def test_results_without_records_and_the_same_settings_run_nothing(finished, tmp_path):
    folder = without_records(finished, tmp_path / "run", keep_times=True)
    assert planned(folder)[0] == []


# -------------------------------------------------------------------------------------------- left-over files


@pytest.fixture(scope="module")
def fewer_shards(finished, tmp_path_factory) -> tuple[Path, str]:
    """The finished run with files of a user, run again with half the shards, and what that run printed."""
    folder = tmp_path_factory.mktemp("fewer") / "run"
    shutil.copytree(finished, folder, symlinks=True)
    (folder / "results/reports/mine.jsonl").write_text("{}\n")
    (folder / "results/reports/03.backup.jsonl").write_text("{}\n")
    (folder / "results/notes.txt").write_text("mine")
    settings = {"cohort": SETTINGS["cohort"] | {"shards": SHARDS // 2}}
    write_settings(folder, settings)
    done = snakemake(folder, "cohort")
    done = snakemake(folder, *TARGETS)
    return folder, done.stdout + done.stderr


def test_shards_of_earlier_settings_are_named(fewer_shards):
    _, printed = fewer_shards
    assert re.search(r"\d+ files[^\n]*clean_old", printed)


def test_clean_old_removes_shards_of_earlier_settings_and_no_file_of_a_user(fewer_shards, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(fewer_shards[0], folder, symlinks=True)
    snakemake(folder, "clean_old")
    names = {path.name for path in (folder / "results/reports").iterdir()}
    assert {name for name in names if re.fullmatch(r"\d+\.jsonl", name)} == {"00.jsonl", "01.jsonl"}
    assert {"mine.jsonl", "03.backup.jsonl"} <= names
    assert (folder / "results/notes.txt").read_text() == "mine"
    assert {path.name for path in (folder / "results/frames").glob("*.h5")} == {"00.h5", "01.h5"}
    assert planned(folder)[0] == []


def test_clean_old_removes_nothing_where_nothing_is_old(copied):
    before = {path for path in copied.rglob("results/**/*") if path.is_file()}
    done = snakemake(copied, "clean_old", check=False)
    assert done.returncode == 0, done.stderr[-600:]
    assert {path for path in copied.rglob("results/**/*") if path.is_file()} == before


# --------------------------------------------------------------------------------------------------- killed


def start_run(folder: Path, *targets: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    command += ["--configfile", str(folder / "mine.yaml"), "--cores", "1", *targets]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **quiet)


def test_a_job_ends_with_the_snakemake_that_started_it(tmp_path):
    images = 400
    noise = np.random.default_rng(1).integers(0, 255, (2400, 2400), np.uint8)
    (tmp_path / "a.png").write_bytes(png_of(noise))
    rows = [f"p,s{n},i{n},a.png,Clear lungs.,PA" for n in range(images)]
    header = "subject_id,study_id,image_id,image_path,findings,view"
    (tmp_path / "manifest.csv").write_text("\n".join([header, *rows]) + "\n")
    write_settings(tmp_path, {"cohort": SETTINGS["cohort"] | {"shards": 1}})
    snakemake(tmp_path, "cohort")
    run = start_run(tmp_path, "frames")
    jobs: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 300
        while not jobs and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.3)
            jobs = [
                process
                for process in psutil.Process(run.pid).children(recursive=True)
                if "cxr.imaging.frames.worker" in " ".join(process.cmdline())
            ]
        assert jobs, "no job was seen"
        family = psutil.Process(run.pid).children(recursive=True)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        assert not list(tmp_path.glob("results/frames/*.h5"))
    finally:
        if run.poll() is None:
            run.kill()
        for process in psutil.process_iter():
            try:
                if process.pid in {member.pid for member in locals().get("family", [])}:
                    process.kill()
            except psutil.NoSuchProcess:
                pass
