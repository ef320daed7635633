"""Ids and texts with $, quotation marks, brackets, braces or a leading =, wherever they are drawn or written."""

import ast
import csv
import io
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from conftest import ROOT
from cxr.base import tables as formulas
from cxr.base.tables import read_table, write_table
from cxr.imaging.cohort.rows import describe_unusable
from cxr.plotting import plots
from cxr.reporting.explain.document import Document
from cxr.reporting.explain.request import page_name

ODD = ["=1+1", "$x_^$ <b>q</b>", "'; touch $HOME;'", '"q" & co', "{s}", "-s", "#1 %d", "名" * 42, "*[a]?~", "@x",
       "+1+A1", "<script>alert(1)<|script>", "100%", "$\\frac{$", "${HOME}", "a b", "1" * 60, "x\u202ey",
       "é\u0301"]  # fmt: skip


# ------------------------------------------------------------------------------------------ names of files


@pytest.mark.parametrize(
    ("identifier", "why"),
    [
        ("a" * 128, ""),
        ("a" * 129, "has 129 bytes, at most 128 are allowed"),
        ("名" * 42, ""),
        ("名" * 128, "has 384 bytes, at most 128 are allowed"),
        ("é" * 65, "has 130 bytes, at most 128 are allowed"),
        ("a\\b", "holds '\\\\'"),
        ("a\tb", "holds a control character or a line break"),
    ],
)
def test_the_length_of_an_id_is_counted_in_bytes(identifier, why):
    assert describe_unusable(identifier) == why


def test_every_study_has_a_page_that_snakemake_can_name():
    names = [page_name(study) for study in ODD]
    assert len(set(names)) == len(ODD)
    for name in names:
        assert not set(name) & set("{}<>\"'*?[]$ ;&|#\\/")
        assert len(f".{name}.html.a-host.1234567.part".encode()) <= 255
        assert not re.search(r"(.+?)\1{19,}$", name)
    assert page_name("SYN0001-1") == "SYN0001-1"
    assert page_name("s 1") == "s%201"


# ------------------------------------------------------------------------------------------------ figures


def test_a_dollar_is_a_dollar_in_every_figure(tmp_path):
    """$x_^$ is no formula that matplotlib knows: it was an error."""
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.set_title("$x_^$ costs $5")
    axes.imshow(np.zeros((4, 4)))
    plots.draw_legend(axes, {"$\\frac{$": plots.BLUE})
    plots.save_png(figure, tmp_path / "a.png", 50)
    plots.save_jpeg(figure, tmp_path / "a.jpg", 50, 80)
    assert (tmp_path / "a.png").stat().st_size > 500


def test_whatever_draws_a_figure_knows_that():
    drawing = []
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        modules = {f"{node.module}.{name.name}" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                   if isinstance(node, ast.ImportFrom) and node.module for name in node.names}  # fmt: skip
        if "matplotlib.figure.Figure" in modules and path.name != "plots.py":
            drawing.append(path.name)
            assert any(name.startswith("cxr.plotting.plots") or name == "cxr.plotting.plots" for name in modules), path
    assert len(drawing) > 5


# --------------------------------------------------------------------------------------- pages and screens


def test_a_page_shows_texts_and_runs_none():
    text = '<script>alert(1)</script> & "x" {s}'
    document = Document()
    document.add_heading(text, 1)
    document.add_paragraph(text)
    document.add_marked_text(text, [])
    document.add_table([text], [[text]], text)
    page = document.to_html(text)
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 7


def test_a_screen_gets_no_command_of_a_report():
    document = Document()
    document.add_paragraph("a\x1b]0;title\x07b\u202ec")
    document.add_marked_text("x\x9b31my", [])
    told = document.to_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", told)
    assert told == "a\ufffd]0;title\ufffdb\ufffdc\n  x\ufffd31my\n"


# -------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_tables_for_people_hold_no_formula_and_lose_no_letter(tmp_path, name):
    texts = [
        *ODD,
        "-0.5",
        "+3",
        "-1e-5",
        "-",
        "- No effusion.",
        "'=1",
        "''-a",
        "it's",
        "'",
        "line\nbreak",
        'a"b',
        "\tx",
    ]
    table = pl.DataFrame({"id": texts, "n": range(len(texts)), "again": texts[::-1]})
    write_table(tmp_path / name, table)
    mark = "\t" if name.endswith("tsv") else ","
    cells = [row[0] for row in csv.reader(io.StringIO((tmp_path / name).read_text()), delimiter=mark)][1:]
    assert [cell for cell in cells if re.match(r"[=@\t\r]|[+-](?![\d.,eE+\-% ]*$)", cell)] == []
    assert [cell for cell in cells if cell in ("-0.5", "+3", "-1e-5", "-")] == ["-0.5", "+3", "-1e-5", "-"]
    assert "'=1+1" in cells
    assert "'- No effusion." in cells
    assert read_table(tmp_path / name).equals(table)


@given(st.lists(st.text(alphabet="'=+-@a1. \t"), min_size=1))
def test_a_guard_is_taken_away_again(texts):
    table = pl.DataFrame({"x": texts}, schema={"x": pl.String})
    written = formulas.guard_formulas(table)
    assert formulas.unguard_formulas(written).equals(table)
    assert [formulas.unguard_cell(cell) for cell in written["x"]] == texts
