"""Measure the memory of ROSALIA's training step and validation, part by part, and calculate it for comparison.

    python benchmarks/rosalia_memory.py [--size lite|7b] [--layers 2,4] [--batch 4] [--dtype bfloat16] [--device auto]
        [--results results] [--output benchmarks/rosalia_memory.tsv]

The memory is that of the tensors in use (`tensors_alive.py`), which can be measured without a GPU. On a GPU, the
allocator's peak is measured too. The training step has adapters, gradient checkpointing and AdamW on the parts that the
paper trains, all in ``--dtype``. `7b` has LISA-7B's sizes with random weights. With two numbers of ``--layers`` per
net, the memory of the whole model with 32 layers is extrapolated linearly. The calculation follows
docs/systems/rosalia.md.
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

import rosalia  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.ils.rosalia.samples import Batch  # noqa: E402
from cxr.ils.training import train  # noqa: E402
from cxr.ils.training.fit import compute_losses  # noqa: E402
from cxr.nets.devices import inference  # noqa: E402
from tensors_alive import Alive  # noqa: E402

WHOLE = 32
"""Number of layers of LISA-7B's language model and of SAM's encoder."""
COLUMNS = {
    "what": pl.String, "size": pl.String, "device": pl.String, "dtype": pl.String, "batch": pl.Int64,
    "layers": pl.Int64, "measured_gb": pl.Float64, "reckoned_gb": pl.Float64,
}  # fmt: skip
"""Columns of the table. layers: 0 for a model with all layers, 32 for extrapolated rows."""
Row = dict[str, object]


def reckoned(bench: rosalia.Bench, batch: Batch, layers: int) -> tuple[float, float]:
    """Return the calculated bytes of (SAM's encoder, activations of the remaining training step).

    The activations are those between checkpointed layers, those of one recomputed layer, logits, and masks.
    """
    text, vision = bench.model.config.llava.text_config, bench.model.config.sam.vision_config
    bytes_each, tokens = bench.dtype.itemsize, batch.input_ids.numel()
    patches = (vision.image_size // vision.patch_size) ** 2
    between = tokens * text.hidden_size * bytes_each * layers
    again = tokens * (4 * text.hidden_size + 3 * text.intermediate_size) * bytes_each * 2
    masks = len(batch.image_of) * 6 * vision.image_size**2 * 4
    return 2 * vision.num_attention_heads * patches**2 * bytes_each, between + again + masks


def step_of(bench: rosalia.Bench, batch: Batch, layers: int) -> list[tuple[str, float, float]]:
    """Return (part, measured bytes, calculated bytes) of each part of a training step."""
    model, recipe = bench.model, bench.recipe
    train.add_adapters(model, recipe.lora)
    model.to(bench.dtype)
    if recipe.gradient_checkpointing:
        model.checkpoint_gradients()
    trained = train.select_trained(model, recipe.trained)
    optimiser = train.make_optimiser(trained, recipe)
    values = sum(value.numel() for value in trained.values())
    weights = sum(value.nbytes for value in model.parameters())
    model.train()

    def step() -> tuple[Alive, Alive]:
        with Alive() as seen:
            views = model.encode(batch)
        with Alive() as rest:
            compute_losses(model(batch, views), batch)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(trained.values(), recipe.clip)
            optimiser.step()
        return seen, rest

    step()  # the optimiser's state is there from now on
    optimiser.zero_grad(set_to_none=True)
    if cuda := bench.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seen, rest = step()
    gradients = sum(value.grad.nbytes for value in trained.values() if value.grad is not None)
    moments = sum(one.nbytes for state in optimiser.state.values() for one in state.values())
    encoders, after = reckoned(bench, batch, layers)
    told = [
        ("weights", weights, sum(value.numel() for value in model.parameters()) * bench.dtype.itemsize),
        ("gradients", gradients, values * bench.dtype.itemsize),
        ("optimiser's moments", moments, 2 * values * bench.dtype.itemsize),
        ("encoders", seen.peak, encoders),
        ("all after the encoders, gradients included", rest.peak, after + values * bench.dtype.itemsize),
    ]
    whole = [held[0] + held[2] + max(held[3], held[4]) for held in zip(*(part[1:] for part in told), strict=True)]
    told.append(("a training step", *whole))
    if cuda:
        told.append(("a training step, the allocator's peak", torch.cuda.max_memory_allocated(), 0.0))
    return told


def validation_of(bench: rosalia.Bench, batch: Batch) -> list[tuple[str, float, float]]:
    """Return a row with the maximum bytes of tensors while masks are predicted, without the weights."""
    bench.model.eval()
    with inference(), Alive() as alive:
        bench.model.segment(batch)
    return [("masks alone, as in validation", alive.peak, 0.0)]


def measured(given: argparse.Namespace, layers: int) -> list[Row]:
    """Return the rows of a model with ``layers`` layers per net; 0: all layers."""
    made = argparse.Namespace(
        **vars(given) | {"layers": layers or None, "updates": 0, "rounds": 1, "max_new_tokens": 8}
    )
    bench = rosalia.make(made)
    bench.model.images_at_once = 1
    pairs = bench.pairs("train", answers=True, masks=True)
    (batch,) = rosalia.batches_of(pairs, bench.recipe, given.batch, 1, distinct=True)
    batch = bench.to(batch)
    depth = bench.model.config.llava.text_config.num_hidden_layers
    name = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    shared = {
        "size": given.size,
        "device": name,
        "dtype": str(bench.dtype).removeprefix("torch."),
        "batch": given.batch,
    }
    found = validation_of(bench, batch) + step_of(bench, batch, depth)
    return [
        {"what": what, **shared, "layers": layers, "measured_gb": had / 1e9, "reckoned_gb": thought / 1e9 or None}
        for what, had, thought in found
    ]


def whole(rows: list[Row], few: int, many: int) -> list[Row]:
    """Return rows of the whole model, extrapolated from the rows with ``few`` and with ``many`` layers."""
    found = []
    for one, other in zip(*([row for row in rows if row["layers"] == at] for at in (few, many)), strict=True):
        line = {
            name: one[name] and one[name] + (other[name] - one[name]) / (many - few) * (WHOLE - few)
            for name in ("measured_gb", "reckoned_gb")
        }
        found.append(other | line | {"what": f"{one['what']}, computed from {few} and {many} layers", "layers": WHOLE})
    held = {row["what"].partition(",")[0]: row for row in found}
    told = [name for name in ("measured_gb", "reckoned_gb") if held["weights"][name]]
    for name in told:  # the step's maximum is in one of two phases, of which one grows with the layers
        held["a training step"][name] = sum(held[part][name] for part in ("weights", "optimiser's moments")) + max(
            held[part][name] for part in ("encoders", "all after the encoders")
        )
    return found


def main(wanted: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("lite", "7b"), default="lite")
    parser.add_argument("--layers", help="two numbers of layers of 7b (default: the whole model)")
    parser.add_argument("--batch", type=int, default=4, help="pairs of a micro-batch")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=tuple(rosalia.DTYPES))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--output", default="benchmarks/rosalia_memory.tsv")
    given = parser.parse_args(wanted)
    if not Path(rosalia.lines_of(given.results, "train")).is_file():
        sys.exit(f"{given.results} holds no dataset: run make demo, or give another --results")
    depths = [int(one) for one in given.layers.split(",")] if given.layers else [0]
    rows = [row for layers in depths for row in measured(given, layers)]
    if len(depths) == 2:
        rows += whole(rows, *depths)
    for row in rows:
        thought = f", by arithmetic {row['reckoned_gb']:.3g}" if row["reckoned_gb"] else ""
        print(f"{row['what']}: {row['measured_gb']:.3g} GB{thought}", flush=True)
    write_table(given.output, pl.DataFrame(rows, schema=COLUMNS).with_columns(pl.col(pl.Float64).round_sig_figs(3)))
    print(f"table in {given.output}")


if __name__ == "__main__":
    main()
