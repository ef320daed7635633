"""Measure the speed and the rounding error of RadEdit's autoencoder for each number type and memory layout.

    python benchmarks/autoencoder.py [--device auto|cpu|cuda] [--images 8] [--rows 1] [--tiny]
        [--output benchmarks/autoencoder.tsv]

The net is the autoencoder of Stable Diffusion XL at its true size with random weights. With `--tiny` it is the small
net of the tests. Each frame of 512 pixels is encoded and decoded once. The error is the change of the decoded image, in
grey levels, from that of float32. Published weights would give another error. On a device without TF32, tf32 equals
float32.
"""

import argparse
import os
import sys
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests/support", "benchmarks")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import torch  # noqa: E402

import engines_nets  # noqa: E402
import tiny_diffusion  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.diffusion.nets import NetOptions, Nets  # noqa: E402
from cxr.nets.devices import select_device  # noqa: E402
from cxr.nets.speed import Speed, memory_format  # noqa: E402
from engines_run import clock_of, device_name, frame  # noqa: E402

KINDS = ("float32", "tf32", "bfloat16")
GREY = 127.5
"""Factor from the range -1..1 to grey levels."""
COLUMNS = {
    "autoencoder": pl.String, "layout": pl.String, "device": pl.String, "s_per_image": pl.Float64,
    "mean_grey": pl.Float64, "most_grey": pl.Float64,
}  # fmt: skip


def nets(kind: str, speed: Speed, device: torch.device, rows: int, *, tiny: bool) -> Nets:
    """Return a diffusion model that has only the autoencoder, with the options that the engines use."""
    torch.manual_seed(0)
    vae = (tiny_diffusion.vae() if tiny else engines_nets.vae()).eval()
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    vae = vae.to(device, dtype).to(memory_format=memory_format(speed))
    return Nets(lambda *_: None, vae, {}, [], "epsilon", device, NetOptions(torch.bfloat16, kind, rows, speed))


def measured(given: argparse.Namespace) -> list[tuple]:
    """Return (number type, layout, device, seconds per image, mean and maximum change) for each type and layout."""
    device, found, plain = select_device(given.device), [], None
    clock = clock_of(device)
    shown = torch.from_numpy(np.stack([frame(f"{at}").image for at in range(given.images)])).float()[:, None] / GREY - 1
    shown = shown.expand(-1, 3, -1, -1)
    for kind, last in product(KINDS, (False, True)):
        used = nets(kind, Speed(channels_last=last), device, given.rows, tiny=given.tiny)
        if device.type == "cuda":  # algorithms are chosen
            used.decode(used.encode(shown[: given.rows]))
            torch.cuda.synchronize()
        began = clock()
        pictures = used.decode(used.encode(shown)).mean(1).cpu()
        seconds = (clock() - began) / given.images
        plain = pictures if plain is None else plain
        change = (pictures - plain).abs() * GREY
        layout = "channels_last" if last else "contiguous"
        found.append((kind, layout, device_name(device), seconds, float(change.mean()), float(change.max())))
        print(
            f"{kind}, {layout}: {seconds:.3g} s an image, {change.mean():.2g} grey levels, at most {change.max():.2g}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1, help="images at a time on a GPU, as compute.batches.autoencoder")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", default="benchmarks/autoencoder.tsv")
    given = parser.parse_args()
    table = pl.DataFrame(measured(given), schema=COLUMNS, orient="row")
    write_table(given.output, table.with_columns(pl.col(pl.Float64).round_sig_figs(3)))


if __name__ == "__main__":
    main()
