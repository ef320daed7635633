"""Run the tests and the measurements that want a GPU, in pieces of under ten minutes, and fill the pages with them.

    python benchmarks/gpu.py [--device auto|cpu|cuda] [--tiny] [--folder gpu] [--results results] [--pieces a,b]
        [--root .]

Each piece writes ``folder``/<piece>.tsv when it is done; a piece that is there is not run again, so the command can be
repeated until nothing is left. Nets have their true sizes and random weights (``--tiny``: the smallest, few images, to
try the command itself). Then all rows go into ``folder``/gpu.tsv and, with the card's name, into the pages
(:data:`PAGES`) below ``--root``, between the marks of this program. Figures of a CPU or of tiny nets are refused for
the repository itself. A piece that fails or takes longer than :data:`LIMIT_S` is told, the others are run, and the exit
status is 1.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

import polars as pl  # noqa: E402
import torch  # noqa: E402

from cxr.base.atomic import atomic  # noqa: E402
from cxr.base.tables import read_table, write_table  # noqa: E402
from cxr.nets.devices import device_of  # noqa: E402

LIMIT_S = 590
COLUMNS = {"piece": pl.String, "card": pl.String, "what": pl.String, "value": pl.Float64, "unit": pl.String}
"""Of every table of this program."""
MARKS = {".md": ("<!-- gpu: begin -->", "<!-- gpu: end -->"), ".yaml": ("# gpu: begin", "# gpu: end")}
PAGES = ("docs/reference/scale.md", "docs/reference/benchmarks.md", "benchmarks/scale.yaml")
MARK = "pytest." + "mark.gpu"
"""What a file with such tests holds."""
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Refused(Exception):
    """Raised if a piece gave no figures; the message is one sentence."""


Row = tuple[str, float, str]
"""What, value, unit."""


@dataclass(frozen=True)
class Piece:
    """A part of the whole. ``run`` returns its rows; it raises Refused."""

    name: str
    run: Callable[[argparse.Namespace], list[Row]]


def called(*command: object) -> str:
    """Return what a program printed. Raises Refused if it fails or takes too long."""
    try:
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, cwd=ROOT)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"took longer than {LIMIT_S} s") from None
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
        raise Refused(f"ended with {done.returncode} ({''.join(last)})")
    return done.stdout


def tests(given: argparse.Namespace) -> list[Row]:
    """Run the tests that are marked gpu; without a GPU they are skipped."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]
    told = called("-m", "pytest", "-n", "0", "-m", "gpu", *files)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", told)}
    return [(f"tests {word}", float(counts.get(word, 0)), "tests") for word in ("passed", "skipped")]


def rates(given: argparse.Namespace) -> list[Row]:
    """Measure the rate of square matrix products by number type."""
    device, rows = device_of(given.device), []
    side, rounds = (256, 2) if given.tiny else (8192, 20)
    for name, dtype in DTYPES.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        one @ other
        _wait(device)
        began = time.perf_counter()
        for _ in range(rounds):
            one @ other
        _wait(device)
        rows.append((f"matrix product in {name}", 2e-12 * side**3 * rounds / (time.perf_counter() - began), "TFLOP/s"))
    return rows


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def engine(name: str, batch: int) -> Callable[[argparse.Namespace], list[Row]]:
    """Return the piece's function for an engine at a batch size."""

    def run(given: argparse.Namespace) -> list[Row]:
        table = given.folder / f"engines_{name}_{batch}.table.tsv"
        images = batch if given.tiny else max(2 * batch, 8)
        command = ["benchmarks/engines.py", "--device", given.device, "--engines", name, "--images", images]
        steps = ["--steps", 1 if given.tiny else 20] if name == "radedit" else []
        called(*command, "--batch", batch, *steps, "--output", table.resolve())
        found = read_table(table).filter(pl.col("batch") == batch).to_dicts()
        return [
            row
            for one in found
            for row in (
                (f"{name}, {batch} at a time", one["s_per_image"], "s an image"),
                (f"{name}, {batch} at a time, memory", one["peak_gb"], "GB"),
            )
        ]

    return run


def rosalia(given: argparse.Namespace) -> list[Row]:
    """Measure a training step, answers and masks beside the plain port."""
    table = given.folder / "rosalia.table.tsv"
    # in bfloat16, for in float32 one of so few pixels on a threshold would stop the benchmark
    quick = "--size lite --updates 0 --steps 1 --rounds 1 --batches 2 --images 2 --max-new-tokens 4 --dtype bfloat16"
    size = (quick if given.tiny else "--size 7b --dtype bfloat16 --batches 1,4").split()
    called("benchmarks/rosalia.py", "--device", given.device, "--results", given.results.resolve(), *size,
           "--output", table.resolve())  # fmt: skip
    rows = []
    for one in read_table(table).to_dicts():
        what = f"ROSALIA {one['size']}, {one['what']}, {one['batch']} at a time"
        rows.append((what, one["ours_pairs_per_s"], "pairs a second"))
        rows.append((f"{what}, over the plain port", one["ratio"], "times"))
        rows.append((f"{what}, memory", one["ours_peak_gb"], "GB"))
    return rows


def pieces(tiny: bool) -> list[Piece]:
    """Return the pieces in their order."""
    engines = {"hybridgnet": (1,)} if tiny else {
        "hybridgnet": (1, 8, 64), "scaled_yolov4": (1, 8), "radedit": (1, 8, 16),
    }  # fmt: skip
    found = [Piece("tests", tests), Piece("rates", rates)]
    found += [Piece(f"{name}_{batch}", engine(name, batch)) for name, sizes in engines.items() for batch in sizes]
    return [*found, Piece("rosalia", rosalia)]


def card_of(device: str) -> str:
    """Return the card's name."""
    chosen = device_of(device)
    return torch.cuda.get_device_name() if chosen.type == "cuda" else "CPU"


def run_pieces(given: argparse.Namespace) -> list[str]:
    """Run the pieces that are not done; return what went wrong, a sentence each."""
    wrong, card = [], card_of(given.device)
    for piece in pieces(given.tiny):
        table = given.folder / f"{piece.name}.tsv"
        if table.exists() or (given.pieces and piece.name not in given.pieces):
            continue
        print(f"{piece.name} …", flush=True)
        try:
            rows = piece.run(given)
        except Refused as error:
            wrong.append(f"{piece.name}: {error}")
            print(wrong[-1], flush=True)
            continue
        write_table(table, pl.DataFrame([(piece.name, card, *row) for row in rows], schema=COLUMNS, orient="row"))
    return wrong


def joined(folder: Path, tiny: bool) -> pl.DataFrame:
    """Return the rows of all pieces that are done, in their order."""
    paths = [folder / f"{piece.name}.tsv" for piece in pieces(tiny)]
    done = [read_table(path).cast(COLUMNS) for path in paths if path.exists()]
    return pl.concat([pl.DataFrame(schema=COLUMNS), *done]).with_columns(pl.col("value").round_sig_figs(3))


def filled(text: str, suffix: str, block: str) -> str:
    """Return a page with ``block`` between its marks. Raises Refused for a page without them."""
    begin, end = MARKS[suffix]
    if text.count(begin) != 1 or text.count(end) != 1:
        raise Refused(f"the marks {begin} and {end} are missing")
    return text[: text.index(begin) + len(begin)] + f"\n{block}\n" + text[text.index(end) :]


def blocks(table: pl.DataFrame) -> dict[str, str]:
    """Return {suffix of a page: what stands between its marks}."""
    cards = " and ".join(table["card"].unique(maintain_order=True))
    lines = [f"| {what} | {value:g} | {unit} |" for what, value, unit in table.select("what", "value", "unit").rows()]
    page = "\n".join([f"Measured by `make gpu` on: {cards}.", "", "| what | value | unit |", "|---|---|---|", *lines])
    rows = [f"  - {{card: {card!r}, what: {what!r}, value: {value:g}, unit: {unit!r}}}"
            for _, card, what, value, unit in table.rows()]  # fmt: skip
    return {".md": page, ".yaml": "\n".join(["measured:", *rows])}


def fill(root: Path, table: pl.DataFrame) -> None:
    """Write the figures into the pages below ``root``. Raises Refused."""
    told = blocks(table)
    for name in PAGES:
        path = root / name
        text = filled(path.read_text(encoding="utf-8"), path.suffix, told[path.suffix])
        with atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run as a program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--tiny", action="store_true", help="smallest nets, to try the command")
    parser.add_argument("--folder", type=Path, default=ROOT / "gpu")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="of a demo, for ROSALIA's pairs")
    parser.add_argument("--pieces", type=lambda text: text.split(","), help="only these, by commas")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the pages are")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    wrong = run_pieces(given)
    table = joined(given.folder, given.tiny)
    write_table(given.folder / "gpu.tsv", table)
    if given.root.resolve() == ROOT and (given.tiny or "CPU" in table["card"]):
        wrong.append("the pages stay as they are: figures of a CPU or of tiny nets are not for them (--root)")
        print(wrong[-1])
    elif len(table):
        fill(given.root, table)
    print(f"{len(table)} figures in {given.folder / 'gpu.tsv'}; {len(wrong)} things went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
