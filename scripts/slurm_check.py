"""What this cluster lacks for `snakemake --profile slurm`, on one screen; with `--submit` a job that looks at a node.

    python scripts/slurm_check.py [--submit] [snakemake's own arguments, such as --configfile mine.yaml]

Ends with 1 if something is missing.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from ils.core.cluster import orphans
from ils.core.slurm import Finding, asked, findings

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("sbatch", "squeue", "scontrol", "sinfo", "sacct", "conda", "apptainer")


def answer(*command: str) -> str:
    """Return what a command prints. Ends the check with its complaint where it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"slurm-check: {command[0]} does not answer: is the controller up?")
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        sys.exit(f"slurm-check: {' '.join(command[:3])} fails: {said[-1] if said else done.returncode}")
    return done.stdout


def on_a_node(partition: str) -> Finding:
    """Submit a job that writes a file here with this Python, and look for it."""
    place = ROOT / ".snakemake" / "slurm_check"
    place.mkdir(parents=True, exist_ok=True)
    file = place / "node.txt"
    file.unlink(missing_ok=True)
    code = f"import platform, snakemake; open({str(file)!r}, 'w').write(platform.node())"
    wrapped = f'{sys.executable} -c "{code}"'
    command = ["sbatch", "--wait", "--parsable", f"--partition={partition}", "--time=2", "--mem=500"]
    subprocess.run([*command, f"--output={place}/%j.log", "--wrap", wrapped], capture_output=True, check=False)
    if file.is_file():
        return Finding(
            f"a node of {partition}", True, f"{file.read_text()} has this Python and writes into this folder"
        )
    lack = f"a job wrote nothing here: the log in {place} says why; this folder and {sys.prefix} must be on every node"
    return Finding(f"a node of {partition}", False, lack)


def main(arguments: list[str]) -> None:
    """Print one line for each thing that was looked at."""
    programs = {name for name in PROGRAMS if shutil.which(name)}
    for name in ("sbatch", "scontrol"):
        if name not in programs:
            sys.exit(f"slurm-check: there is no {name}: run this on a login node of the cluster")
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    known = yaml.safe_load((ROOT / "profiles/slurm/partitions.yaml").read_text(encoding="utf-8"))["partitions"]
    words = [word for word in arguments if word != "--submit"]
    dry_run = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--sdm", "env-modules", "--dry-run"]
    dry_run += ["--forceall", "--cores", "10000"]  # else it shows the cores of this machine
    found = findings(
        config=answer("scontrol", "show", "config"),
        sinfo=answer("sinfo", "--noheader", "--format=%R|%l|%m|%c|%G|%M"),
        jobs=asked(answer(*dry_run, *words)),
        profile=profile,
        known=known,
        programs=programs,
        orphans=orphans(Path.cwd()),
    )
    if "--submit" in arguments:
        found.append(on_a_node(next(iter(known))))
    width = max(len(one.what) for one in found)
    for one in found:
        print(f"{'ok   ' if one.good else 'LACKS'}  {one.what:{width}}  {one.told}")
    sys.exit(not all(one.good for one in found))


if __name__ == "__main__":
    main(sys.argv[1:])
