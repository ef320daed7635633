"""`make test-all`: pytest's counts, resuming, and that no suite of the Makefile is forgotten."""

import re
import subprocess
import sys

import pytest

import run_suites
from conftest import MAKEFILE, ROOT
from run_suites import Suite, passed_before, run_suite, state_of, table_of

TESTS = """
import pytest

def test_one(): pass
def test_two(): pass
def test_wrong(): assert False
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_expected_to_fail(): assert False
@pytest.fixture
def broken(): raise ValueError
def test_error(broken): pass
"""


@pytest.fixture
def project(tmp_path):
    """A folder with a Makefile: a suite that passes, one with every outcome, and one without tests."""
    (tmp_path / "test_all_outcomes.py").write_text(TESTS)
    pytest_command = f"{sys.executable} -m pytest -q -p no:cacheprovider test_all_outcomes.py"
    (tmp_path / "Makefile").write_text(
        f"right:\n\techo once >> runs\n\t{pytest_command} -k 'one or two'\n"
        f"wrong:\n\techo once >> runs\n\t{pytest_command}\nlint:\n\ttrue\n"
    )
    return tmp_path


def counts(outcome) -> tuple[int, int, int]:
    return outcome.passed, outcome.failed, outcome.skipped


def test_counts_are_those_of_pytest(project):
    folder = project / "done"
    right, wrong, lint = (run_suite(Suite(name), folder, project) for name in ("right", "wrong", "lint"))
    assert counts(right) == (2, 0, 0)
    assert counts(wrong) == (2, 2, 2)
    assert counts(lint) == (0, 0, 0)
    assert [outcome.is_green for outcome in (right, wrong, lint)] == [True, False, True]
    assert "test_wrong" in (folder / "wrong.log").read_text()
    header, *rows, total = table_of({"right": right, "wrong": wrong}).splitlines()
    assert header.split() == ["suite", "passed", "failed", "skipped", "seconds"]
    assert rows[1].split()[:4] == ["wrong", "2", "2", "2"]
    assert rows[1].endswith("make ended with 2")
    assert total.split()[:4] == ["total", "4", "2", "2"]


def test_a_suite_that_passed_is_not_repeated(project, monkeypatch, capsys):
    monkeypatch.setattr(run_suites, "ROOT", project)
    monkeypatch.setattr(run_suites, "SUITES", (Suite("right"), Suite("wrong")))
    monkeypatch.setattr(run_suites, "state_of", lambda root: "commit")
    assert run_suites.main([]) == 1
    assert run_suites.main([]) == 1
    assert (project / "runs").read_text().split() == ["once"] * 3  # the wrong one twice
    assert "failed: wrong; the logs are in" in capsys.readouterr().out
    assert run_suites.main(["right"]) == 0
    assert (project / "runs").read_text().split() == ["once"] * 3


def test_an_interrupted_suite_is_repeated(project):
    folder = project / "done"
    run_suite(Suite("right"), folder, project)
    assert passed_before(Suite("right"), folder)
    (folder / "right.json").unlink()  # it is written last
    assert passed_before(Suite("right"), folder) is None


def test_results_are_those_of_a_commit_and_its_changes(tmp_path):
    def git(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "first")
    clean = state_of(tmp_path)
    states = {clean}
    for text in ("2", "3"):
        (tmp_path / "a").write_text(text)
        states.add(state_of(tmp_path))
    assert len(states) == 3
    (tmp_path / "a").write_text("1")
    assert state_of(tmp_path) == clean
    git("commit", "--allow-empty", "-m", "second")
    assert state_of(tmp_path) not in states


def test_every_target_that_runs_tests_is_a_suite():
    rules = re.findall(r"^([\w-]+):(?!=).*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    with_tests = {target for target, recipe in rules if "/pytest " in recipe}
    assert len(with_tests) >= 10
    # the workflow on a cluster is the first part of test-faults
    assert with_tests - {"test-slurm"} == {suite.target for suite in run_suites.SUITES} - {"lint"}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert {suite.name for suite in run_suites.SUITES} >= {f"test-slow:{folder}" for folder in folders}


def test_an_unknown_suite_is_refused(capsys):
    with pytest.raises(SystemExit):
        run_suites.main(["nothing"])
    assert "there is no suite nothing; there are lint, test-quick:base" in capsys.readouterr().err
