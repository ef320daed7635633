"""The target `gpu`: pieces run once, a failed one does not stop the others; only a card's figures reach the pages."""

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
import gpu_pieces
import scale


@pytest.fixture
def root(tmp_path) -> Path:
    """Copies of the unit costs and the page of hours, as they are where nothing was measured on a card."""
    root = tmp_path / "root"
    for name in (gpu.UNITS, gpu.HOURS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    units, hours = root / gpu.UNITS, root / gpu.HOURS
    before = scale.report(units=units)
    units.write_text(gpu.filled(units.read_text(), "measured: []"))
    hours.write_text(gpu.recomputed(hours.read_text(), before, scale.report(units=units)))
    return root


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

    monkeypatch.setattr(gpu, "pieces", lambda tiny: [gpu_pieces.Piece("frail", frail), gpu_pieces.Piece("fast", fast)])
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
    units = yaml.safe_load((root / "resources/costs.yaml").read_text())
    assert units["measured"][1] == {
        "card": "Card X",
        "what": "radedit, 8 at a time",
        "value": 0.512,
        "unit": "s an image",
    }
    assert units["counts"] == yaml.safe_load((ROOT / "resources/costs.yaml").read_text())["counts"]
    pages = [(root / name).read_text() for name in (gpu.UNITS, gpu.HOURS)]
    assert gpu.main(given) == 0  # a second time the same pages
    assert len(asked) == 3
    assert [(root / name).read_text() for name in (gpu.UNITS, gpu.HOURS)] == pages


def test_what_a_card_took_becomes_the_hours_of_its_stage(tmp_path, root, asked):
    """By hand: 0.512 s an image of 227,835; the other stages stay others' figures."""
    assert "| anomaly | 227,835 | 2.4 | 307 | others, A100 |" in (root / gpu.HOURS).read_text()
    gpu.main(["--folder", str(tmp_path / "gpu"), "--root", str(root)])
    page = (root / gpu.HOURS).read_text()
    assert f"| anomaly | 227,835 | 2.4 | {0.512 * 227_835 / 3600:.0f} | measured, Card X |" in page
    assert "| organs | 227,835 | 2 | 0.41 | others, A100 |" in page
    assert f"| anomaly | 133 | {0.512 * 227_835 / 64:,.0f} | **no** |" in page


def test_of_several_batches_the_fastest_counts_and_settings_of_ones_own_do_not():
    units = {"measured": [
        {"card": "X", "what": "cxas, 1 at a time", "value": 0.3, "unit": "s an image"},
        {"card": "X", "what": "cxas, 8 at a time", "value": 0.1, "unit": "s an image"},
        {"card": "X", "what": "cxas, 8 at a time, memory", "value": 0.01, "unit": "GB"},
        {"card": "X", "what": "cxas, 8 at a time, compile=true", "value": 0.05, "unit": "s an image"},
        {"card": "X", "what": "tests passed", "value": 9.0, "unit": "tests"},
    ]}  # fmt: skip
    assert scale.measured_by_us(units) == {"cxas": (0.1, "X")}


def test_a_piece_without_its_package_says_so_and_is_no_failure(tmp_path, root, monkeypatch, capsys):
    monkeypatch.setattr(gpu_pieces, "ROOT", tmp_path)  # without environments of their own
    monkeypatch.setitem(gpu_pieces.APART, "no_such_package", "make it")

    def lacking(given):
        gpu_pieces.python_with("no_such_package")

    monkeypatch.setattr(gpu, "pieces", lambda tiny: [gpu_pieces.Piece("lacking", lacking)])
    assert gpu.main(["--folder", str(tmp_path / "gpu"), "--root", str(root)]) == 0
    assert "lacking: the package no_such_package is not installed: `make it` makes" in capsys.readouterr().out
    assert not (tmp_path / "gpu/lacking.tsv").exists()


def test_a_page_without_a_table_of_hours_is_refused(root):
    page = root / gpu.HOURS
    page.write_text(page.read_text().replace("| anomaly | 227,835 |", "| anomaly | 1 |"))
    with pytest.raises(gpu.Refused, match=r"lacks the table that begins with \| stage"):
        gpu.fill(root, pl.DataFrame([("a", "Card X", "b", 1.0, "c")], schema=gpu.COLUMNS, orient="row"))


def test_figures_of_a_cpu_are_not_for_the_repository(tmp_path, asked, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "card_of", lambda device: "CPU")
    monkeypatch.setattr(gpu, "fill", lambda *_: pytest.fail("the repository's pages were written"))
    assert gpu.main(["--folder", str(tmp_path), "--pieces", "fast"]) == 1
    assert "are not written into this repository's files" in capsys.readouterr().out
    assert asked == ["fast"]


def test_unit_costs_without_marks_are_refused(root):
    units = root / gpu.UNITS
    text = "".join(line for line in units.read_text().splitlines(keepends=True) if not line.startswith("# gpu:"))
    units.write_text(text)
    with pytest.raises(gpu.Refused, match="marks"):
        gpu.fill(root, pl.DataFrame([("a", "Card X", "b", 1.0, "c")], schema=gpu.COLUMNS, orient="row"))
    assert units.read_text() == text


def test_the_figures_of_the_page_are_measured_ones():
    """The page's table is a selection of ``measured`` in the unit costs."""
    section = (ROOT / "docs/reference/benchmarks.md").read_text(encoding="utf-8").split("## Measured on a card")[1]
    rows = [tuple(row.strip("| ").split(" | ")) for row in section.splitlines() if row.startswith("| ")][1:]
    measured = yaml.safe_load((ROOT / gpu.UNITS).read_text(encoding="utf-8"))["measured"]
    assert len(rows) == 10
    assert set(rows) <= {(row["what"], f"{row['value']:g}", row["unit"]) for row in measured}


def test_a_program_that_fails_or_is_slow_is_one_sentence(monkeypatch):
    with pytest.raises(gpu.Refused, match=r"^ended with 3 \(why\)$"):
        gpu_pieces.called("-c", "import sys; print('why'); sys.exit(3)")

    def slow(*_, **how):
        assert how["timeout"] == gpu_pieces.LIMIT_S < 600
        raise subprocess.TimeoutExpired("x", how["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(gpu.Refused, match=r"^took longer than 590 s$"):
        gpu_pieces.called("-c", "")


@pytest.mark.parametrize("tiny", [False, True])
def test_the_pieces_have_names_of_their_own(tiny):
    names = [piece.name for piece in gpu.pieces(tiny)]
    assert len(names) == len(set(names))
    assert {"tests", "rates", "autoencoder", "semisyn_editing", "vllm", "rosalia", "rosalia_memory"} <= set(names)
    assert {f"{name}_1" for name in ("hybridgnet", "cxas", "scaled_yolov4", "ultralytics", "radedit")} <= set(names)


@pytest.mark.slow
def test_the_whole_command_on_a_cpu_with_the_smallest_nets(tmp_path, root, workflow_run):
    """Every piece but the tests and those of other environments, whose absence is told."""
    given = ["--device", "cpu", "--tiny", "--folder", str(tmp_path / "gpu"), "--root", str(root)]
    names = {piece.name for piece in gpu.pieces(True)} - {"tests", "cxas_1", "ultralytics_1", "vllm"}
    assert gpu.main([*given, "--results", str(workflow_run / "results"), "--pieces", ",".join(names)]) == 0
    table = read_table(tmp_path / "gpu/gpu.tsv")
    assert set(table["piece"]) == names
    assert set(table["card"]) == {"CPU"}
    positive = table.filter(~pl.col("unit").is_in(["grey levels"]) & pl.col("value").is_not_nan())
    assert (positive["value"] > 0).all()
    assert "card: 'CPU'" in (root / gpu.UNITS).read_text()
    page = (root / gpu.HOURS).read_text()
    assert page.count("| measured, CPU |") == 3  # organs, anomaly and boxes
    assert "| others, V100 |" in page  # anatomy, whose package is not here
