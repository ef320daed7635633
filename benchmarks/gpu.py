"""Run the tests and the measurements that need a GPU, in pieces of less than ten minutes, and record the results.

    python benchmarks/gpu.py [--device auto|cpu|cuda] [--tiny] [--folder gpu] [--results results] [--pieces a,b]
        [--root .]

Each piece writes ``folder``/<piece>.tsv. A piece with an existing file is not run again, so the command can be repeated
until all pieces are done. Nets have their true sizes and random weights. ``--tiny`` uses the smallest nets and few
images, to try the command.

Then the rows of all pieces are written to ``folder``/gpu.tsv and, with the GPU's name, to the list ``measured`` of the
unit costs (:data:`UNITS`) below ``--root``. The tables of hours (:data:`HOURS`) are recomputed from the unit costs. The
table of docs/reference/benchmarks.md is a selection of these rows, written by hand. Results of a CPU or of tiny nets
are never written into this repository's files.

A piece whose package is not installed is skipped with a message. If a piece fails or takes longer than ten minutes, the
error is printed, the other pieces run, and the exit status is 1.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

import polars as pl  # noqa: E402
import torch  # noqa: E402

import scale  # noqa: E402
from cxr.base.atomic import atomic_file  # noqa: E402
from cxr.base.tables import read_table, write_table  # noqa: E402
from cxr.nets.devices import select_device  # noqa: E402
from gpu_pieces import Absent, Refused, pieces  # noqa: E402

COLUMNS = {"piece": pl.String, "card": pl.String, "what": pl.String, "value": pl.Float64, "unit": pl.String}
"""Columns of every table of this program."""
MARKS = ("# gpu: begin", "# gpu: end")
HOURS, UNITS = "docs/reference/scale.md", "resources/costs.yaml"
"""Page whose tables are computed from the unit costs, and file of the unit costs."""


def card_of(device: str) -> str:
    """Return the name of the GPU, or "CPU"."""
    chosen = select_device(device)
    return torch.cuda.get_device_name() if chosen.type == "cuda" else "CPU"


def run_pieces(given: argparse.Namespace) -> list[str]:
    """Run the pieces that have no table yet; return one sentence for each piece that failed."""
    wrong, card = [], card_of(given.device)
    for piece in pieces(given.tiny):
        table = given.folder / f"{piece.name}.tsv"
        if table.exists() or (given.pieces and piece.name not in given.pieces):
            continue
        print(f"{piece.name} …", flush=True)
        try:
            rows = piece.run(given)
        except Absent as error:
            print(f"{piece.name}: {error}", flush=True)
            continue
        except Refused as error:
            wrong.append(f"{piece.name}: {error}")
            print(wrong[-1], flush=True)
            continue
        write_table(table, pl.DataFrame([(piece.name, card, *row) for row in rows], schema=COLUMNS, orient="row"))
    return wrong


def joined(folder: Path, tiny: bool) -> pl.DataFrame:
    """Return the rows of all finished pieces, in the order of the pieces."""
    paths = [folder / f"{piece.name}.tsv" for piece in pieces(tiny)]
    done = [read_table(path).cast(COLUMNS) for path in paths if path.exists()]
    return pl.concat([pl.DataFrame(schema=COLUMNS), *done]).with_columns(pl.col("value").round_sig_figs(3))


def filled(text: str, block: str) -> str:
    """Return the text of the unit costs with ``block`` between the marks. Raises Refused if a mark is missing."""
    begin, end = MARKS
    if text.count(begin) != 1 or text.count(end) != 1:
        raise Refused(f"the marks {begin} and {end} are missing")
    return text[: text.index(begin) + len(begin)] + f"\n{block}\n" + text[text.index(end) :]


def block_of(table: pl.DataFrame) -> str:
    """Return the list ``measured`` of the unit costs as YAML."""
    rows = [f"  - {{card: {card!r}, what: {what!r}, value: {value:g}, unit: {unit!r}}}"
            for _, card, what, value, unit in table.rows()]  # fmt: skip
    return "\n".join(["measured:", *rows])


def fill(root: Path, table: pl.DataFrame) -> None:
    """Write the results into the unit costs, and recompute the page of hours, below ``root``. Raises Refused."""
    units, hours = root / UNITS, root / HOURS
    before = scale.report(units=units)
    _write(units, filled(units.read_text(encoding="utf-8"), block_of(table)))
    _write(hours, recomputed(hours.read_text(encoding="utf-8"), before, scale.report(units=units)))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def recomputed(text: str, before: str, after: str) -> str:
    """Return the page ``text`` with the tables ``before`` replaced by ``after``. Raises Refused if the page lacks a
    table."""
    for old, new in zip(before.strip().split("\n\n"), after.strip().split("\n\n"), strict=True):
        if old not in text:
            raise Refused(f"{HOURS} lacks the table that begins with {old.splitlines()[0]}: run benchmarks/scale.py")
        text = text.replace(old, new)
    return text


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--tiny", action="store_true", help="smallest nets, to try the command")
    parser.add_argument("--folder", type=Path, default=ROOT / "gpu")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="of a demo, with ROSALIA's pairs")
    parser.add_argument("--pieces", type=lambda text: text.split(","), help="pieces to run, joined by commas")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the repository whose files are updated")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    wrong = run_pieces(given)
    table = joined(given.folder, given.tiny)
    write_table(given.folder / "gpu.tsv", table)
    if given.root.resolve() == ROOT and (given.tiny or "CPU" in table["card"]):
        wrong.append("results of a CPU or of tiny nets are not written into this repository's files (--root)")
        print(wrong[-1])
    elif len(table):
        fill(given.root, table)
    print(f"{len(table)} figures in {given.folder / 'gpu.tsv'}; {len(wrong)} pieces or steps failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
