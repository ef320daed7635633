"""What tests share: where the real data are, and one run of the workflow on a slice of the embedded cohort."""

import ast
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from planner import Planner

# as `make test` does: sums of floats, and so the bytes of a training, depend on the number of threads
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = "".join((ROOT / name).read_text() for name in ("Makefile", "tests/environments.mk", "experiments/Makefile"))
"""The text of the Makefile and of its parts."""
SHARED = (ROOT / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
SLICE = {
    "phantom": {"subjects": 6, "studies": 9}, "figures": {"studies": 2}, "page": {"gallery": 2},
}  # fmt: skip
"""Settings of the slice on which whole runs are tested."""


LONGEST = (
    "workflow/test_regeneration", "reporting/test_release", "workflow/test_containers", "workflow/test_workflow",
    "reporting/test_ablation", "ils/test_training", "workflow/test_faults", "imaging/test_frames",
    "language/test_reports", "reporting/test_explain", "reporting/test_page", "workflow/test_envs",
    "workflow/test_scale", "workflow/test_files_change", "imaging/test_weights", "ils/test_predict",
)  # fmt: skip
"""The files that take longest, in core seconds; the first waits for no run that another makes."""


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPUs from all tests but those marked gpu: the others compare with results of a CPU."""
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: a process that is busy with it for minutes leaves the rest to the others."""
    places = {ROOT / "tests" / f"{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (places.get(item.path, len(places)), item.get_closest_marker("xdist_group") is None))


def pytest_sessionfinish() -> None:
    if _planner.cache_info().currsize:
        _planner().__exit__()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the real test data; skips visibly where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no real data: CXR_ILS_SHARED is {SHARED}")
    return SHARED


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread, whatever another test set: the bytes of a training depend on it."""
    import torch  # here: other tests need none of it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def loads(monkeypatch) -> list[list[int]]:
    """For each load of the language model that stands in, the numbers of questions it was asked, batch by batch."""
    from cxr.llm import client  # here: other tests need none of it

    seen: list[list[int]] = []

    def connect(options, execution):
        seen.append([])
        ask = client.connect_stand_in(options, execution)

        def generate(questions, attempt):
            seen[-1].append(len(questions))
            return ask(questions, attempt)

        return generate

    monkeypatch.setitem(client.TRANSPORTS, "stand_in", connect)
    return seen


@pytest.fixture
def segment(tmp_path) -> Callable:
    """Return a function that runs the masks stage on constructed chests (:func:`masks_chest.segmenter`)."""
    from masks_chest import segmenter  # here: other tests need none of it

    return segmenter(tmp_path)


@cache
def _planner() -> Planner:
    """Snakemake in memory, one for all tests of this process; it ends with it."""
    return Planner(ROOT).__enter__()


def snakemake(
    directory: Path, *arguments: str, cores: int = 2, check: bool = True, root: Path = ROOT
) -> subprocess.CompletedProcess:
    """Run the workflow of ``root`` in ``directory`` as a user would; settings are those of ``directory``/mine.yaml."""
    words = ["--snakefile", str(root / "Snakefile"), "--directory", str(directory)]
    words += ["--configfile", str(directory / "mine.yaml"), "--cores", str(cores), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if root == ROOT:
        done = _planner().start(words, environment)
    else:  # a copy whose modules a test edits
        command = [sys.executable, "-m", "snakemake", *words]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode:
        logs = "\n".join(f"{log}: {log.read_text()[-2000:]}" for log in sorted(directory.glob("logs/**/*.log")))
        raise AssertionError(f"snakemake {' '.join(arguments)} failed\n{done.stderr[-6000:]}\n{logs[-6000:]}")
    return done


def parts(count: int, quick: int = 1) -> list:
    """Return the numbers of a test's parts, for ``parametrize``: all but the first ``quick`` of them are slow."""
    return [*range(quick), *(pytest.param(part, marks=pytest.mark.slow) for part in range(quick, count))]


def every(step: int, cases: Iterable) -> list:
    """Return a test's cases, tuples or values, for ``parametrize``: all but every ``step``-th are slow."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.slow] if number % step else [])
        for number, case in enumerate(cases)
    ]


def stand_in(program: Path, text: str) -> None:
    """Write a program that stands for another, and its folder."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)


def write_settings(directory: Path, settings: dict) -> Path:
    """Write ``directory``/mine.yaml (JSON is YAML) and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "mine.yaml").write_text(json.dumps(settings))
    return directory


@pytest.fixture(scope="session")
def workflow_run(tmp_path_factory, worker_id) -> Path:
    """The working directory of one finished run on the slice: 3 shards, 2 cores. Tests must not write in it."""
    base = tmp_path_factory.getbasetemp()
    directory = (base if worker_id == "master" else base.parent) / "slice"
    with open(f"{directory}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker runs it, the others wait
        if not (directory / "done").exists():
            write_settings(directory, SLICE)
            snakemake(directory, "all")
            (directory / "done").touch()
    return directory


@pytest.fixture(scope="session")
def dry_run() -> Callable[..., dict[str, int]]:
    """Return a function that gives {rule: jobs} of a dry run."""

    def count(directory: Path, *arguments: str, root: Path = ROOT) -> dict[str, int]:
        done = snakemake(directory, "--dry-run", *arguments, root=root)
        lines = done.stdout.splitlines() + done.stderr.splitlines()
        jobs: dict[str, int] = {}
        table = iter(lines)
        for line in table:
            if line.split() == ["job", "count"]:
                next(table)
                for row in table:
                    if not row.strip() or row.startswith("total"):
                        return jobs
                    name, number = row.split()
                    jobs[name] = int(number)
        return jobs

    return count


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Names of the modules that the import statements among ``nodes`` ask for; ``from a import b`` gives two."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
