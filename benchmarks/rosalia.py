"""Measure the speed of ROSALIA's training and evaluation, in comparison with a plain port of the published code.

    python benchmarks/rosalia.py [--size lite|7b] [--layers N] [--device auto|cpu|cuda] [--dtype float32|bfloat16]
        [--results results] [--batches 1,4,16] [--images 8] [--steps 3] [--updates 60] [--rounds 3]
        [--max-new-tokens 64] [--output benchmarks/rosalia.tsv]

`lite` has the sizes of `training.lite.sizes`. `7b` has those of LLaMA-7B, CLIP ViT-L/14 and SAM ViT-H with random
weights; `--layers` reduces the layers of each net, for a quick try. The pairs come from the dataset in `--results`,
which `make demo` can make.

Our code and the port alternate. They use the same weights and modules, and the images are read and resized before. A
training step is forward, backward, clipping and AdamW on the parts that the paper trains; the encoders of SAM and CLIP
are frozen. In float32 the benchmark stops unless losses, masks and answers agree. In bfloat16 the table only reports
the agreement.

`lite` is first trained for `--updates` steps, so that its answers end. Random weights (`7b`, or `--updates 0`) are
changed so that the answer begins with [SEG], and give `--max-new-tokens` tokens. Times are core seconds on a CPU and
wall seconds on a GPU. Memory is the maximum: of tensors on a GPU, of the process on Linux.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import rosalia_original as original  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.ils.inference.asker import Asker  # noqa: E402
from cxr.ils.inference.infer import split_by_images  # noqa: E402
from cxr.ils.inference.settings import InferenceOptions  # noqa: E402
from cxr.ils.rosalia.lite import make_lite  # noqa: E402
from cxr.ils.rosalia.model import SAM_IMAGES, Rosalia  # noqa: E402
from cxr.ils.rosalia.sampler import PairSampler  # noqa: E402
from cxr.ils.rosalia.samples import Batch, Pairs, Sample, collate  # noqa: E402
from cxr.ils.rosalia.sources import PairLines  # noqa: E402
from cxr.ils.rosalia.tokens import Tokens, extract_answer, make_word_tokenizer, write_prompt  # noqa: E402  # noqa: E402
from cxr.ils.training import train  # noqa: E402
from cxr.ils.training.fit import WEIGHTS, compute_losses  # noqa: E402
from cxr.ils.training.settings import Recipe  # noqa: E402
from cxr.nets.devices import inference, select_device  # noqa: E402
from cxr.workflow.settings import Settings  # noqa: E402
from rosalia_nets import Meter, random_7b  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LOSS_OFF, PIXELS_OFF = 1e-4, 1e-6
"""Maximum difference in float32: of a loss relative to its value, and the fraction of different pixels of a mask."""
COLUMNS = {
    "what": pl.String, "size": pl.String, "device": pl.String, "dtype": pl.String, "batch": pl.Int64,
    "pairs": pl.Int64, "images": pl.Int64, "tokens": pl.Int64, "ours_pairs_per_s": pl.Float64,
    "original_pairs_per_s": pl.Float64, "ratio": pl.Float64, "ours_peak_gb": pl.Float64,
    "original_peak_gb": pl.Float64, "agreement": pl.Float64,
}  # fmt: skip
"""Columns of the table. agreement: for evaluation, the mean fraction of equal pixels, 0 for different answers; for
training steps, 1 - the largest relative difference of a loss."""


@dataclass(frozen=True)
class Bench:
    """The model, the data and the options of a benchmark."""

    size: str
    recipe: Recipe
    model: Rosalia
    tokens: Tokens
    device: torch.device
    dtype: torch.dtype
    results: Path
    rounds: int
    max_new_tokens: int
    random: bool
    """Whether the weights are random, so that the answers have no meaning."""

    def asker(self, batch: int, *, text: bool) -> Asker:
        """Return our evaluation with the default settings."""
        plain = Settings()
        asking = plain.inference.as_dict(without=("split", "paraphrases"))
        asking |= {name: getattr(plain.training, name) for name in ("conversation", "max_length", "fit")}
        asking |= {"text": text, "max_new_tokens": self.max_new_tokens, "dtype": str(self.dtype).removeprefix("torch.")}
        return Asker(self.model, self.tokens, InferenceOptions(**asking), self.device, batch)

    def pairs(self, split: str, *, answers: bool, masks: bool) -> Pairs:
        """Return the pairs of a split; with ``masks``, the target masks have the side of SAM's input, as in
        training."""
        options = replace(self.asker(1, text=True).pair_options(), answers=answers)
        if masks:
            options = replace(options, target=options.sam_side)
        shards = {"frames": sorted(map(str, self.results.glob("frames/[0-9]*.h5")))}
        if masks:
            shards |= {"masks": sorted(map(str, self.results.glob("masks/default/[0-9]*.h5")))}
        return Pairs(lines=lines_of(self.results, split), tokens=self.tokens, options=options, **shards)

    def to(self, batch: Batch) -> Batch:
        """Return a batch on the model's device and in its number type."""
        return batch.to(self.device, self.dtype)


def lines_of(results: Path, split: str) -> str:
    """Return the path of a split's pairs."""
    return str(results / f"dataset/default/{split}.jsonl")


def make(given: argparse.Namespace) -> Bench:
    """Return the benchmark with its model and tokenizer."""
    device = select_device(given.device)
    training = Settings().training
    recipe = training.lite if given.size == "lite" else training.rosalia
    lora = replace(recipe.lora, dropout=0.0)  # dropout would differ between the two implementations
    recipe = replace(recipe, runner="plain", trained=training.rosalia.trained, lora=lora)
    texts = (
        write_prompt(line["instruction"], line["answer"], training.conversation)
        for split in ("train", "validate", "test")
        for line in PairLines(lines_of(given.results, split))
    )
    tokens = Tokens.prepare(make_word_tokenizer(texts))
    dtype = DTYPES[given.dtype or ("float32" if device.type == "cpu" else "bfloat16")]
    if given.size == "lite":
        model = make_lite(training.lite.model_sizes, tokens, 0).to(device, dtype)
    else:
        model = random_7b(tokens, given.layers, device, dtype)
    model.images_at_once = SAM_IMAGES if device.type == "cuda" else None
    size = given.size + (f", {given.layers} layers" if given.layers else "")
    return Bench(
        size, recipe, model, tokens, device, dtype, given.results, given.rounds,
        given.max_new_tokens, random=given.size != "lite" or not given.updates,
    )  # fmt: skip


def in_turns(
    bench: Bench, works: list[Callable[[], object]], before: Callable[[], None] = lambda: None
) -> tuple[list[Meter], list[object]]:
    """Run each function once to warm up, then ``rounds`` times in turns; return (meters, results of the warm-up).

    ``before`` is called before each warm-up.
    """
    given = []
    for work in works:
        before()
        given.append(work())
    meters = [Meter(bench.device) for _ in works]
    for _ in range(bench.rounds):
        for meter, work in zip(meters, works, strict=True):
            with meter:
                work()
    return meters, given


def row(bench: Bench, what: str, batch: int, pairs: int, images: int, tokens: int, meters: list[Meter], agreement):
    """Print and return a row of the table; ``meters``: ours and the port's."""
    ours, theirs = meters
    name = torch.cuda.get_device_name() if bench.device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread"
    values = {
        "what": what, "size": bench.size, "device": name, "dtype": str(bench.dtype).removeprefix("torch."),
        "batch": batch, "pairs": pairs, "images": images, "tokens": tokens, "ours_pairs_per_s": pairs / ours.seconds,
        "original_pairs_per_s": pairs / theirs.seconds, "ratio": theirs.seconds / ours.seconds,
        "ours_peak_gb": ours.peak, "original_peak_gb": theirs.peak, "agreement": float(agreement),
    }  # fmt: skip
    print(
        f"{what}, {batch} at a time: {values['ours_pairs_per_s']:.3g} pairs/s, original "
        f"{values['original_pairs_per_s']:.3g}, ratio {values['ratio']:.2f}",
        flush=True,
    )
    return values


def agreed(bench: Bench, what: str, off: float, limit: float) -> None:
    """Exit with a message if the two implementations differ by more than ``limit`` in float32."""
    if bench.dtype == torch.float32 and not off <= limit:
        sys.exit(f"{what}: the two loops differ by {off:.3g}, more than {limit:.3g}: one of them is wrong")


# training


def batches_of(pairs: Pairs, recipe: Recipe, size: int, count: int, *, distinct: bool) -> list[Batch]:
    """Return ``count`` batches, sampled as in training, or with ``distinct`` as many different images as possible."""
    if not distinct:
        draws = PairSampler(
            pairs.lines.positive, batch=size, seed=0, balance=recipe.balance, equalise=recipe.equalise, where="train"
        )
        batches = [batch for batch in draws if len(batch) == size][:count]
    else:
        rows = np.unique(pairs.lines.image, return_index=True)[1]
        every = np.concatenate([rows, (rows + 1) % len(pairs)])
        rows = np.resize(every, size * count).reshape(count, size)
        batches = [list(map(int, row)) for row in rows]
    return [collate([pairs[at] for at in rows], pairs.tokens.pad) for rows in batches]


def stepper(bench: Bench, forward: Callable[[Rosalia, Batch], dict], batches: list[Batch], parameters, optimiser):
    """Return a function that takes one training step per batch and returns the losses."""
    model, clip = bench.model, bench.recipe.clip

    def work() -> list[float]:
        model.train()
        told = []
        for batch in batches:
            losses = forward(model, bench.to(batch))
            losses["loss"].backward()
            nn.utils.clip_grad_norm_(parameters.values(), clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            told.append(float(losses["loss"].detach()))
        return told

    return work


def bench_training(bench: Bench, sizes: list[int], count: int) -> list[dict]:
    """Return the rows of training steps for several batch sizes."""
    pairs, rows = bench.pairs("train", answers=True, masks=True), []
    model, recipe = bench.model, bench.recipe
    forwards = (
        lambda model, batch: compute_losses(model(batch), batch),
        lambda model, batch: original.losses(model, batch, WEIGHTS),
    )
    train.add_adapters(model, recipe.lora)
    model.to(bench.dtype)
    if recipe.gradient_checkpointing:
        model.checkpoint_gradients()
    parameters = train.select_trained(model, recipe.trained)
    start = {name: value.detach().cpu().clone() for name, value in parameters.items()}
    # both implementations share one optimiser, so that memory includes only one
    optimiser = train.make_optimiser(parameters, recipe)
    for group in optimiser.param_groups:
        group["lr"] = 1e-5  # large enough to be an update, small enough that rounding stays rounding

    def reset() -> None:
        optimiser.state.clear()
        for name, value in parameters.items():
            value.data.copy_(start[name])

    for distinct in (False, True):
        for size in sizes:
            batches = batches_of(pairs, recipe, size, count, distinct=distinct)
            works = [stepper(bench, forward, batches, parameters, optimiser) for forward in forwards]
            meters, told = in_turns(bench, works, reset)
            off = max(abs(one - two) / abs(two) for one, two in zip(*told, strict=True))
            what = "training step" + (", all pictures different" if distinct else "")
            agreed(bench, what, off, LOSS_OFF)
            images, tokens = sum(len(each.images) for each in batches), sum(each.input_ids.numel() for each in batches)
            rows.append(row(bench, what, size, size * len(batches), images, tokens, meters, 1 - off))
    return rows


# evaluation


def ours_evaluated(bench: Bench, samples: list[Sample], images: list[int], batch: int, *, text: bool) -> list[tuple]:
    """Return (answer or None, mask) of each sample by our evaluation, as in the stage inference."""
    asker, replies = bench.asker(batch, text=text), []
    for rows in split_by_images(images, batch):
        replies += asker.ask([samples[place] for place in rows], lambda logits: logits > 0)
    if faults := {reply.fault for reply in replies if reply.fault}:
        sys.exit(f"our evaluation failed: {min(faults)}")
    return [(reply.answer, reply.mask_values) for reply in replies]


def theirs_evaluated(bench: Bench, samples: list[Sample], *, text: bool) -> list[tuple]:
    """Return (answer or None, mask) of each sample by the port, one at a time. Without ``text``, samples contain
    answers."""
    found, tokens = [], bench.tokens
    with inference():
        for sample in samples:
            batch = bench.to(collate([sample], tokens.pad))
            if text:
                said, masks = original.evaluate(bench.model, batch, bench.max_new_tokens)
                answer = extract_answer(tokens.decode([*batch.input_ids[0].tolist(), *said]))
            else:
                answer, masks = None, original.predicted(bench.model, batch)[1][0]
            found.append((answer, (masks > 0).any(0).cpu().numpy() if len(masks) else None))
    return found


def likeness(one: tuple, two: tuple) -> float:
    """Return the fraction of equal pixels of two (answer, mask); 0 if the answers differ."""
    if one[0] != two[0] or (one[1] is None) != (two[1] is None):
        return 0.0
    return 1.0 if one[1] is None else float(np.mean(one[1] == two[1]))


def bench_evaluation(bench: Bench, sizes: list[int], count: int) -> list[dict]:
    """Return the rows of masks with answers, and of masks alone, for the first ``count`` images of the test split."""
    rows = []
    bench.model.eval()
    pairs = bench.pairs("test", answers=False, masks=False)
    images = [int(image) for image in pairs.lines.image if image < count]
    samples = [pairs[place] for place in range(len(images))]
    answered = bench.pairs("test", answers=True, masks=False)
    whole = [answered[place] for place in range(len(images))]
    tokens = sum(len(sample.input_ids) for sample in samples)
    if bench.random:
        let_it_say_seg(bench, samples[0])
    for text in (True, False):
        theirs = None
        for size in sizes:
            works = [lambda size=size, text=text: ours_evaluated(bench, samples, images, size, text=text)]
            if theirs is None:  # the port processes one pair at a time, whatever the batch
                works.append(lambda text=text: theirs_evaluated(bench, samples if text else whole, text=text))
            meters, found = in_turns(bench, works)
            theirs = theirs or (meters[1], found[1])
            alike = [likeness(one, two) for one, two in zip(found[0], theirs[1], strict=True)]
            what = "evaluation, masks and answers" if text else "evaluation, masks alone"
            agreed(bench, what, 1 - min(alike), PIXELS_OFF)
            if not any(mask is not None and mask.any() for _, mask in theirs[1]):
                sys.exit(f"{what}: no mask has a pixel, so there is nothing to compare: raise --updates")
            both = [meters[0], theirs[0]]
            rows.append(row(bench, what, size, len(images), len(set(images)), tokens, both, np.mean(alike)))
    return rows


def let_it_say_seg(bench: Bench, sample: Sample) -> None:
    """Change the output weights so that the answer to ``sample`` begins with [SEG]."""
    batch = bench.to(collate([sample], bench.tokens.pad))
    head = bench.model.llava.lm_head.weight
    with torch.no_grad():
        first = bench.model.generate(batch, 1).ids[0][0]
        head[bench.tokens.seg] = 1.01 * head[first]  # the largest logit, and a little more


def learn(bench: Bench, updates: int) -> None:
    """Train all parts of the small model for ``updates`` steps, so that its answers have a meaning and end."""
    pairs, parameters = bench.pairs("train", answers=True, masks=True), list(bench.model.parameters())
    optimiser = torch.optim.AdamW(parameters, 2e-3)
    draws = PairSampler(pairs.lines.positive, batch=16, seed=1, balance="exact", equalise=1.0, where="train")
    done = 0
    while done < updates:
        draws.start_at(done)
        for some in draws:
            batch = bench.to(collate([pairs[at] for at in some], bench.tokens.pad))
            bench.model.train()
            compute_losses(bench.model(batch), batch)["loss"].backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            done += 1


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("lite", "7b"), default="lite")
    parser.add_argument("--layers", type=int, help="layers of each net of 7b, for a quick try")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=tuple(DTYPES), help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--batches", default="1,4,16", help="batch sizes")
    parser.add_argument("--steps", type=int, default=3, help="training steps in a round")
    parser.add_argument("--images", type=int, default=8, help="images of the test split to evaluate")
    parser.add_argument("--updates", type=int, default=60, help="training steps of lite before the measurements")
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements; the fastest counts")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--output", default="benchmarks/rosalia.tsv")
    return parser.parse_args(given)


def main(wanted: list[str] | None = None) -> None:
    given = arguments(wanted)
    if not Path(lines_of(given.results, "test")).is_file():
        sys.exit(f"{given.results} holds no dataset: run make demo, or give another --results")
    bench = make(given)
    if given.size == "lite":
        learn(bench, given.updates)
    sizes = [int(size) for size in given.batches.split(",")]
    rows = bench_evaluation(bench, sizes, given.images)  # before adapters and updates
    rows += bench_training(bench, sizes, given.steps)
    write_table(given.output, pl.DataFrame(rows, schema=COLUMNS).with_columns(pl.col(pl.Float64).round_sig_figs(4)))
    print(f"table in {given.output}")


if __name__ == "__main__":
    main()
