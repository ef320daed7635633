"""Snakemake, started many times: ``python planner.py ROOT`` reads its arguments and environment, a JSON line a run.

Every run is a fork of one process that has Snakemake and the modules of ROOT's rule files in memory, so that it takes
a quarter of the time of a new interpreter. What the process keeps of a file, it keeps by content, so an edited file
is read again. The forks start the same processes for their jobs as ``python -m snakemake`` does.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

IMPORTED = (
    "cxr.imaging.cohort.check", "cxr.base.engines", "cxr.workflow.params", "cxr.workflow.settings",
    "cxr.workflow.forecast.forecast",
    "cxr.imaging.weights.catalogue", "pandas", "smart_open", "snakemake.executors.dryrun",
    "snakemake.report.html_reporter", "snakemake.storage", "yte",
)  # fmt: skip
"""Modules that a dry run imports besides ``snakemake.cli``."""


@dataclass
class Job:
    """One job of a dry run."""

    rule: str
    input: set[str] = field(default_factory=set)
    output: set[str] = field(default_factory=set)
    reason: str = ""
    log: set[str] = field(default_factory=set)
    wildcards: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)


def jobs_of(text: str) -> list[Job]:
    """Return the jobs that a dry run prints; jobs of a group are printed farther in."""
    jobs: list[Job] = []
    for line in map(str.strip, text.splitlines()):
        if match := re.fullmatch(r"(?:local)?rule (\w+):", line):
            jobs.append(Job(match[1]))
        elif match := re.fullmatch(r"(input|output|log): (.*)", line):
            setattr(jobs[-1], match[1], set(match[2].split(", ")))
        elif match := re.fullmatch(r"reason: (.*)", line):
            jobs[-1].reason = match[1]
        elif match := re.fullmatch(r"(wildcards|resources): (.*)", line):
            setattr(jobs[-1], match[1], dict(pair.split("=", 1) for pair in match[2].split(", ")))
    return jobs


class Planner:
    """Dry runs of the workflow of ``root``. Use inside ``with``."""

    def __init__(self, root: Path):
        self.root = root

    def __enter__(self) -> "Planner":
        command = [sys.executable, __file__, self.root]
        self._process = subprocess.Popen(
            command, cwd=self.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        # a word, and not the end of the pipe: a process that was forked since then, a reader of torch's, holds it open
        self._process.communicate("null\n")

    def jobs(self, directory: Path, settings: Path, *arguments: str | Path) -> list[Job]:
        """Return the jobs of a dry run in ``directory``, planned or not. Raises AssertionError if Snakemake fails."""
        return jobs_of(self.run(directory, settings, "--dry-run", "--no-hooks", *arguments))

    def run(self, directory: Path, settings: Path, *arguments: str | Path) -> str:
        """Return what Snakemake prints. Raises AssertionError if it fails."""
        status, text = self.ask(["--configfile", settings, "--directory", directory, "--cores", 2, *arguments])
        assert status == 0, text
        return text

    def ask(self, arguments: list[object]) -> tuple[int, str]:
        """Return the exit status of ``snakemake ARGUMENTS`` and what it prints."""
        done = self.start([str(word) for word in arguments])
        return done.returncode, done.stdout + done.stderr

    def start(self, arguments: list[str], environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess:
        """Run ``python -m snakemake ARGUMENTS`` in ``root`` with an environment; return what it printed."""
        print(json.dumps([arguments, dict(environment)]), file=self._process.stdin, flush=True)
        return subprocess.CompletedProcess(arguments, *json.loads(self._process.stdout.readline()))


def answer(arguments: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """Return exit status, output and errors of ``python -m snakemake ARGUMENTS``, run in a fork of this process."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            with open(os.devnull) as nothing:  # what a job reads is none of ours
                os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(_run(arguments, environment))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (output, errors):
            file.seek(0)
        return status, output.read(), errors.read()


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    """Run Snakemake in this process, and return the status it would leave with."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(Path(snakemake.__file__).with_name("__main__.py")), *arguments]
    try:
        snakemake.cli.main()
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        return 1 if isinstance(left.code, str) else left.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 1


def keep_parsed_rules(root: Path) -> None:
    """Parse and compile the rule files of ``root`` once; a fork parses only those whose content has changed."""
    from snakemake import parser, workflow

    parsed: dict[tuple[str, str], tuple[str, dict[int, int], int]] = {}

    def parse(path: object, flow: object, linemap: dict[int, int], overwrite_shellcmd=None, rulecount: int = 0):
        key = str(path), Path(str(path)).read_text(encoding="utf-8")
        if key not in parsed:
            lines: dict[int, int] = {}
            code, rules = parser.parse(path, flow, lines, overwrite_shellcmd)
            parsed[key] = code, lines, rules
        code, lines, rules = parsed[key]
        linemap |= lines
        return code, rulecount + rules  # the count names rules that have no name: there are none

    workflow.parse, workflow.compile = parse, cache(compile)
    flow = SimpleNamespace(sourcecache=SimpleNamespace(open=lambda path: StringIO(Path(str(path)).read_text("utf-8"))))
    for path in (root / "Snakefile", *sorted((root / "rules").rglob("*.smk"))):
        code, _ = parse(workflow.infer_source_file(path), flow, {})
        workflow.compile(code, str(path), "exec")


if __name__ == "__main__":
    import snakemake.cli

    scripts = Path(sys.argv[1]) / "scripts"
    sys.path.insert(0, str(scripts))
    for name in IMPORTED:
        with suppress(ModuleNotFoundError):  # an engine's environment lacks some; importing them early only saves time
            importlib.import_module(name)
    from cxr.base.engines import read_assignments
    from cxr.workflow import settings
    from cxr.workflow.code_digest import imported_names

    for source in scripts.rglob("*.py"):
        imported_names(source)
        read_assignments(source)
    settings.read({})
    keep_parsed_rules(Path(sys.argv[1]))
    for line in sys.stdin:
        if (asked := json.loads(line)) is None:
            break
        print(json.dumps(answer(*asked)), flush=True)
