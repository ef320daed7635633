"""Run every test suite, one after the other, and print one table: passed, failed, skipped, seconds.

python scripts/tools/run_suites.py [SUITE …]

A suite is a target of the Makefile, or for ``test-quick`` and ``test-slow`` the part of a target for one folder of
tests. Logs and pytest's counts are written to ``.suites/<commit>/``. A suite that has passed is not repeated for the
same commit and uncommitted changes, so an interrupted command resumes. The exit status is 1 unless all suites passed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted({path.parent.name for path in ROOT.glob("tests/*/test_*.py")})


@dataclass(frozen=True)
class Suite:
    """A target of the Makefile, with its variables as NAME=value."""

    target: str
    variables: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the suite: the target, and the folder of tests if the suite has only one folder."""
        return ":".join([self.target, *(variable.rpartition("/")[2] for variable in self.variables)])

    @property
    def stem(self) -> str:
        """The name of the suite's files, without their ending."""
        return self.name.replace(":", "-")


def by_folder(target: str) -> list[Suite]:
    """Return the target's suites, one for each folder of tests."""
    return [Suite(target, (f"TESTS=tests/{folder}",)) for folder in FOLDERS]


CLUSTER = "test-faults"
"""The suite that needs SLURM. Its tests are skipped if SLURM is not running and cannot be started."""
SUITES = (
    Suite("lint"), *by_folder("test-quick"),
    *map(Suite, ("vllm-text", "vllm-images", "test-deepspeed", "test-cxas", "test-ultralytics", "test-scispacy",
                 "test-radgraph", CLUSTER)),
    *by_folder("test-slow"),
)  # fmt: skip
"""All suites, the quick ones first."""


@dataclass(frozen=True)
class Outcome:
    """The exit status of make and the numbers of tests. Expected failures count as skipped, and errors as failed."""

    status: int
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def is_green(self) -> bool:
        """Whether make succeeded."""
        return self.status == 0


def outcome_of(status: int, seconds: float, counts: Path) -> Outcome:
    """Return a suite's outcome. ``counts`` is pytest's JUnit XML file, which a suite without tests does not write."""
    numbers = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if counts.is_file():
        for element in ET.parse(counts).iter("testsuite"):
            numbers = {name: number + int(element.get(name, 0)) for name, number in numbers.items()}
    failed = numbers["failures"] + numbers["errors"]
    passed = numbers["tests"] - failed - numbers["skipped"]
    return Outcome(status, passed, failed, numbers["skipped"], round(seconds, 1))


def passed_before(suite: Suite, folder: Path) -> Outcome | None:
    """Return the suite's outcome in ``folder``, where the outcomes of a commit are, or None unless it passed there."""
    path = folder / f"{suite.stem}.json"
    outcome = Outcome(**json.loads(path.read_text())) if path.is_file() else None
    return outcome if outcome and outcome.is_green else None


def run_suite(suite: Suite, folder: Path, root: Path) -> Outcome:
    """Run a suite in ``root``, and return its outcome. Write its log, its counts and last its outcome to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome_path, counts, log_path = (folder / f"{suite.stem}.{ending}" for ending in ("json", "xml", "log"))
    counts.unlink(missing_ok=True)
    environment = os.environ | {"PYTEST_ADDOPTS": f"--junitxml={counts}"}
    begin = time.monotonic()
    with open(log_path, "w") as log:
        status = subprocess.run(
            ["make", "--no-print-directory", suite.target, *suite.variables],
            cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    outcome = outcome_of(status, time.monotonic() - begin, counts)
    outcome_path.write_text(json.dumps(asdict(outcome)))
    return outcome


def state_of(root: Path) -> str:
    """Return the short hash of the commit, followed by a digest of uncommitted changes if there are any."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout

    changes = git("diff", "HEAD") + git("status", "--porcelain")
    commit = git("rev-parse", "--short=12", "HEAD").decode().strip()
    return f"{commit}-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else commit


@contextmanager
def cluster(shared: Path) -> Iterator[None]:
    """Keep a SLURM of one node running in the context, if none runs and ``shared`` has the scripts to start one."""
    tools = shared / "tools/slurm"
    running = subprocess.run(["sh", "-c", "sinfo"], capture_output=True, check=False).returncode == 0
    starts = not running and os.getuid() == 0 and (tools / "start-slurm.sh").is_file()
    if starts:
        subprocess.run([tools / "start-slurm.sh"], stdout=sys.stderr, check=False, timeout=900)
    try:
        yield
    finally:
        if starts:
            subprocess.run([tools / "stop-slurm.sh"], stdout=sys.stderr, check=False, timeout=300)


def table_of(outcomes: dict[str, Outcome]) -> str:
    """Return the table of all suites as text, with the sums in the last row."""
    line = "{:<24}{:>8}{:>8}{:>9}{:>9}  {}"
    rows = [line.format("suite", "passed", "failed", "skipped", "seconds", "")]
    for name, outcome in outcomes.items():
        note = "" if outcome.is_green else f"make ended with {outcome.status}"
        rows.append(line.format(name, outcome.passed, outcome.failed, outcome.skipped, round(outcome.seconds), note))
    sums = [sum(getattr(outcome, name) for outcome in outcomes.values()) for name in ("passed", "failed", "skipped")]
    rows.append(line.format("total", *sums, round(sum(outcome.seconds for outcome in outcomes.values())), ""))
    return "\n".join(row.rstrip() for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    suites = {suite.name: suite for suite in SUITES}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"only these of: {', '.join(suites)}")
    asked = parser.parse_args(arguments).suites or list(suites)
    if unknown := set(asked) - set(suites):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
    folder = ROOT / ".suites" / state_of(ROOT)
    shared = (ROOT / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
    outcomes = {}
    for name in asked:
        outcomes[name] = passed_before(suites[name], folder)
        if outcomes[name] is None:
            print(f"{name} …", file=sys.stderr, flush=True)
            with cluster(shared) if name == CLUSTER else nullcontext():
                outcomes[name] = run_suite(suites[name], folder, ROOT)
    print(table_of(outcomes))
    red = [name for name, outcome in outcomes.items() if not outcome.is_green]
    if red:
        print(f"\nfailed: {', '.join(red)}; the logs are in {folder}")
    return int(bool(red))


if __name__ == "__main__":
    sys.exit(main())
