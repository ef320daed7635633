"""Report what this cluster lacks for `snakemake --profile slurm`.

    python scripts/tools/slurm_check.py [--submit] [snakemake's own arguments: targets, then --configfile mine.yaml]

With `--submit`, jobs also check the nodes, among them a job on a GPU in the environment of each engine that needs one.
The exit status is 1 if something is missing.
"""

import argparse
import getpass
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cxr.base.errors import UserError
from cxr.workflow.folder import find_orphans
from cxr.workflow.slurm.check import Finding, make_findings
from cxr.workflow.slurm.devices import check_gpus, gpu_environments, read_settings
from cxr.workflow.slurm.jobs import read_requests, working_directory
from cxr.workflow.slurm.profile import read_partitions, read_profile

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("sbatch", "squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "conda", "apptainer")
NOTE = "Using profile"
"""Beginning of a line that Snakemake writes to the error output although nothing is wrong."""
ANSWER_S, SUBMIT_S = 300, 300
"""Maximum time for a command to answer, and for a job to get a node and end, in seconds."""


def read_arguments(arguments: list[str]) -> tuple[bool, dict[str, object], list[str]]:
    """Return (whether to submit jobs, {key of the profile: value on the command line}, Snakemake's arguments)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--submit", action="store_true")
    ways = ("--sdm", "--software-deployment-method", "--deployment-method", "--deployment")
    parser.add_argument(*ways, dest="sdm", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--retries", "--restart-times", "-T", help=argparse.SUPPRESS)
    parser.add_argument("--default-resources", "--default-res", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--conda-base-path", help=argparse.SUPPRESS)
    given = vars(parser.parse_known_args(arguments)[0])
    submit = given.pop("submit")
    instead = {key.replace("_", "-"): value for key, value in given.items() if value is not None}
    return submit, instead, [word for word in arguments if word != "--submit"]


def run_command(*command: str) -> str:
    """Return the output of a command. Raises UserError with the command's error message if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} does not answer: check that SLURM's controller runs") from None
    if done.returncode:
        said = _last_line(done.stderr) or _last_line(done.stdout) or done.returncode
        raise UserError(f"{' '.join([Path(command[0]).name, *command[1:3]])} fails: {said}")
    return done.stdout


def default_account() -> str:
    """Return the account that SLURM charges by default, or "" if there is none or it cannot be read."""
    user, form = getpass.getuser(), "format=defaultaccount"
    try:
        said = run_command("sacctmgr", "--noheader", "--parsable2", "show", "user", user, form)
    except UserError:
        return ""
    return said.strip()


def dry_run(words: list[str], attempt: int) -> str:
    """Return the output of a dry run of Snakemake in which every job is at its ``attempt``-th attempt."""
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--dry-run", "--no-hooks", "--forceall"]
    command += words
    command += ["--sdm", "env-modules", "--attempt", str(attempt)]  # with env-modules it does not look for conda
    return run_command(*command, "--cores", "10000")  # otherwise it limits jobs to the cores of this machine


def check_node(partition: str, account: str, directory: Path) -> Finding:
    """Submit a job that writes a file into ``directory`` with this Python, and return whether the file appears."""
    what, place, name = f"a node of {partition}", directory / ".snakemake" / "slurm_check", f"slurm-check_{os.getpid()}"
    place.mkdir(parents=True, exist_ok=True)
    file, log = place / "node.txt", place / "node.log"
    for old in (file, log):
        old.unlink(missing_ok=True)
    code = f"import platform, snakemake; open({str(ROOT / 'Snakefile')!r}); "
    code += f"open({str(file)!r}, 'w').write(platform.node())"
    command = ["sbatch", "--wait", "--parsable", f"--partition={partition}", "--time=2", "--mem=500"]
    command += [f"--account={account}"] if account else []
    command += [f"--job-name={name}", f"--output={log}", "--wrap", shlex.join([sys.executable, "-c", code])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SUBMIT_S, check=False)
    except subprocess.TimeoutExpired:
        subprocess.run(["scancel", f"--name={name}", "--me"], capture_output=True, check=False)
        lack = f"a job of 2 minutes did not end within {SUBMIT_S} s and was cancelled: try again when nodes are free"
        return Finding(what, False, lack)
    if file.is_file():
        return Finding(what, True, f"{file.read_text()} has this Python and writes into {directory}")
    if not done.stdout.strip():  # SLURM gave no job id
        return Finding(what, False, f"SLURM refuses a job: {_last_line(done.stderr) or done.returncode}")
    last_line = _last_line(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""
    problem = f"a job wrote nothing into {directory}" + (f", its log ends with: {last_line}" if last_line else "")
    return Finding(what, False, f"{problem}; every node must have that folder, {ROOT} and {sys.prefix}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(NOTE)]
    return lines[-1] if lines else ""


def check_cluster(arguments: list[str]) -> list[Finding]:
    """Return one finding per check. Raises UserError if nothing can be checked."""
    submit, instead, words = read_arguments(arguments)
    programs = {name for name in PROGRAMS if shutil.which(name)}
    programs |= {"apptainer"} if shutil.which("singularity") else set()
    for name in ("sbatch", "scontrol"):
        if name not in programs:
            raise UserError(f"there is no {name}: run this on a login node of the cluster")
    profile = read_profile(ROOT / "profiles/slurm/config.yaml", instead)
    known = read_partitions(ROOT / "profiles/slurm/partitions.yaml")
    config = run_command("scontrol", "show", "config")
    sinfo = run_command("sinfo", "--exact", "--noheader", "--format=%P|%l|%m|%c|%G|%M")
    first = dry_run(words, 1)
    last = dry_run(words, 1 + profile.retries) if profile.retries else first
    directory = working_directory(first)
    jobs = read_requests(first)
    found = make_findings(
        config=config, sinfo=sinfo, jobs=jobs, last=read_requests(last), profile=profile,
        profile_partitions=known, programs=programs, orphans=find_orphans(directory),
        default_account=default_account() if "sacctmgr" in programs else "",
    )  # fmt: skip
    if not submit:
        return found
    found.append(check_node(known[0].name, profile.account, directory))
    if any(job.gpus for job in jobs):
        settings = read_settings(words, ROOT)
        wanted = gpu_environments(jobs, known, settings)
        found += check_gpus(wanted, settings.compute.container, directory, ROOT, instead)
    return found


def main(arguments: list[str]) -> None:
    """Print one line per check, and exit with status 1 if something is missing."""
    try:
        found = check_cluster(arguments)
    except UserError as error:
        sys.exit(f"slurm-check: {error}")
    width = max(len(one.subject) for one in found)
    for one in found:
        print(f"{'ok   ' if one.is_good else 'LACKS'}  {one.subject:{width}}  {one.message}")
    sys.exit(not all(one.is_good for one in found))


if __name__ == "__main__":
    main(sys.argv[1:])
