"""`make gpu`: pieces are run once, one that fails holds up no other, and the pages get the figures of a card alone."""

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from conftest import ROOT
from cxr.base.tables import read_table

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu


@pytest.fixture
def root(tmp_path) -> Path:
    """Copies of the pages."""
    for name in gpu.PAGES:
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "root" / name)
    return tmp_path / "root"


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Two pieces in place of the real ones, one of which fails at first; the names of those that ran."""
    ran: list[str] = []

    def fast(given):
        ran.append("fast")
        return [("radedit, 8 at a time", 0.512345, "s an image")]

    def frail(given):
        ran.append("frail")
        if ran.count("frail") == 1:
            raise gpu.Refused("took longer than 590 s")
        return [("tests passed", 7.0, "tests")]

    monkeypatch.setattr(gpu, "pieces", lambda tiny: [gpu.Piece("frail", frail), gpu.Piece("fast", fast)])
    monkeypatch.setattr(gpu, "card_of", lambda device: "Card X")
    return ran


def test_each_piece_runs_until_it_is_done_and_the_pages_tell_the_card(tmp_path, root, asked, capsys):
    given = ["--folder", str(tmp_path / "gpu"), "--root", str(root)]
    assert gpu.main(given) == 1
    assert "frail: took longer than 590 s" in capsys.readouterr().out
    assert gpu.main(given) == 0
    assert asked == ["frail", "fast", "frail"]
    assert read_table(tmp_path / "gpu/gpu.tsv").rows() == [
        ("frail", "Card X", "tests passed", 7.0, "tests"),
        ("fast", "Card X", "radedit, 8 at a time", 0.512, "s an image"),
    ]
    for name in gpu.PAGES[:2]:
        text = (root / name).read_text()
        told = text[text.index(gpu.MARKS[".md"][0]) : text.index(gpu.MARKS[".md"][1])]
        assert "Measured by `make gpu` on: Card X." in told
        assert "| radedit, 8 at a time | 0.512 | s an image |" in told
        assert text.startswith((ROOT / name).read_text()[:200])
    units = yaml.safe_load((root / "benchmarks/scale.yaml").read_text())
    assert units["measured"][1] == {
        "card": "Card X",
        "what": "radedit, 8 at a time",
        "value": 0.512,
        "unit": "s an image",
    }
    assert units["counts"] == yaml.safe_load((ROOT / "benchmarks/scale.yaml").read_text())["counts"]
    assert gpu.main(given) == 0  # a second time the same pages
    assert len(asked) == 3


def test_figures_of_a_cpu_are_not_for_the_repository(tmp_path, asked, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "card_of", lambda device: "CPU")
    monkeypatch.setattr(gpu, "fill", lambda *_: pytest.fail("the repository's pages were written"))
    assert gpu.main(["--folder", str(tmp_path), "--pieces", "fast"]) == 1
    assert "the pages stay as they are" in capsys.readouterr().out
    assert asked == ["fast"]


def test_a_page_without_marks_is_refused(root):
    page = root / gpu.PAGES[0]
    page.write_text("no marks")
    with pytest.raises(gpu.Refused, match="marks"):
        gpu.fill(root, pl.DataFrame([("a", "Card X", "b", 1.0, "c")], schema=gpu.COLUMNS, orient="row"))
    assert page.read_text() == "no marks"


def test_a_program_that_fails_or_is_slow_is_one_sentence(monkeypatch):
    with pytest.raises(gpu.Refused, match=r"^ended with 3 \(why\)$"):
        gpu.called("-c", "import sys; print('why'); sys.exit(3)")

    def slow(*_, **how):
        assert how["timeout"] == gpu.LIMIT_S < 600
        raise subprocess.TimeoutExpired("x", how["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(gpu.Refused, match=r"^took longer than 590 s$"):
        gpu.called("-c", "")


@pytest.mark.parametrize("tiny", [False, True])
def test_the_pieces_have_names_of_their_own(tiny):
    names = [piece.name for piece in gpu.pieces(tiny)]
    assert len(names) == len(set(names))
    assert {"tests", "rates", "hybridgnet_1", "rosalia"} <= set(names)


@pytest.mark.slow
def test_the_whole_command_on_a_cpu_with_the_smallest_nets(tmp_path, root, workflow_run):
    given = ["--device", "cpu", "--tiny", "--folder", str(tmp_path / "gpu"), "--root", str(root)]
    assert gpu.main([*given, "--results", str(workflow_run / "results"), "--pieces", "rates,hybridgnet_1,rosalia"]) == 0
    table = read_table(tmp_path / "gpu/gpu.tsv")
    assert set(table["piece"]) == {"rates", "hybridgnet_1", "rosalia"}
    assert set(table["card"]) == {"CPU"}
    assert (table["value"] > 0).all()
    assert "Measured by `make gpu` on: CPU." in (root / gpu.PAGES[0]).read_text()
