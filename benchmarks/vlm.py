"""Measure the code around vision-language models in comparison with simple implementations of the same work.

    python benchmarks/vlm.py [--run results] [--output benchmarks/vlm.tsv]

``--run``: folder of a finished ``snakemake radvlm_instructions``, whose reports are used. ``ratio`` is the time of the
simple implementation divided by ours. ``target`` is the specification's minimum, if there is one. The models are tiny
and random and run on one core, so the ratios say nothing about a large model.
"""

import argparse
import gc
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/support")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import torch  # noqa: E402

from calls import facts_of, in_sentences, of_calls, openi  # noqa: E402
from cxr.base.engines import Setup  # noqa: E402
from cxr.base.tables import read_lines, write_lines, write_table  # noqa: E402
from cxr.geometry.fusion import fuse_groups  # noqa: E402
from cxr.language.reports import engine as reports  # noqa: E402
from cxr.metrics.intervals import draw_weights  # noqa: E402
from cxr.radvlm.conversations import engine as conversations  # noqa: E402
from cxr.radvlm.conversations.engine import ConversationOptions  # noqa: E402
from cxr.radvlm.conversations.engine import Request as Told  # noqa: E402
from cxr.radvlm.conversations.wordings import load_wordings  # noqa: E402
from cxr.radvlm.evaluation import grounding  # noqa: E402
from cxr.radvlm.evaluation.answers import AnswerBoxes  # noqa: E402
from cxr.radvlm.evaluation.measures import score_measures  # noqa: E402
from cxr.radvlm.filtered import engine as filtered  # noqa: E402
from cxr.vlm.answers.ask import image_options, load_collator  # noqa: E402
from cxr.vlm.answers.engine import AnswersOptions, TurnRequest, load_answerer  # noqa: E402
from cxr.vlm.conventions import CONVENTIONS, InputSize  # noqa: E402
from cxr.vlm.families import onevision  # noqa: E402
from cxr.vlm.models import load_run  # noqa: E402
from cxr.vlm.reading import read_boxes  # noqa: E402
from cxr.vlm.samples import ImageStore, read_samples  # noqa: E402
from cxr.vlm.tuning.fit import TextLoss, epoch_order  # noqa: E402
from mixes import measured  # noqa: E402
from plain_fusion import in_fusing_order, plain_fusion  # noqa: E402
from unions import GRID, boxes, of_unions, seconds  # noqa: E402
from vlm_runs import ASKING, OPTIONS, SIDE, ask, data, recipe, tune  # noqa: E402
from xrv_wheel import xrv_data  # noqa: E402

ROUNDS = 5
LARGER = 448
"""Side of the larger images of conversations, px."""
UNIONS = ("IoU of unions of 60 and 60 boxes, 40 pairs at once", "a raster of 1000 × 1000")
REPORTS = 600
SCORED, REPLICATES = 10_000, 1000


def row(what: str, against: str, ratio: float, target: float | None = None) -> dict:
    """Return a row of the table."""
    return {"what": what, "against": against, "ratio": ratio, "target": target}


def of_reading() -> dict:
    """Return the row of the time to read boxes from an answer. The ratio is 1 if the time is linear in their number."""
    seen, grid = InputSize(500, 500), CONVENTIONS["grid1000"]
    texts = {count: grid.answer(boxes(count, count) / GRID, seen) for count in (10, 100)}
    cost = {
        count: seconds(lambda text=text: [read_boxes(text, grid, seen) for _ in range(50)], ROUNDS) / count
        for count, text in texts.items()
    }
    return row("reading a box of 100", "a box of 10", cost[10] / cost[100], 0.5)


def of_buckets() -> dict:
    """Return the row of the tokens with padding in an epoch: a plain shuffle over buckets of similar lengths."""
    lengths = np.random.default_rng(3).lognormal(5.5, 0.5, 4096).astype(int)

    def padded(updates: list) -> int:
        return sum(len(part) * max(lengths[at] for at in part) for part in updates)

    order = np.random.default_rng(4).permutation(len(lengths))
    plain = padded([order[at : at + 16] for at in range(0, len(order), 16)])
    ours = padded(epoch_order(lengths.tolist(), 16, 42, 0))
    return row("tokens of an epoch, padding counted", "a plain shuffle", plain / ours)


def of_fusion(folder: Path) -> list[dict]:
    """Return the row of the fusion of VinBigData's boxes, all groups at once or in loops; no row without the table."""
    data = xrv_data("vinbigdata-train.csv.gz")
    if data is None:
        return []
    (folder / "train.csv.gz").write_bytes(data)
    given = in_fusing_order(folder / "train.csv.gz")
    parts = np.split(given["boxes"], np.flatnonzero(np.diff(given["group"])) + 1)
    loops = seconds(lambda: [plain_fusion(part, 0.1) for part in (one.tolist() for one in parts)], 3)
    ours = seconds(lambda: fuse_groups(given["boxes"], given["group"], 0.1), 3)
    return [row("fusion of 36,096 boxes in 15,365 groups", "each group in loops", loops / ours, 3.0)]


def of_mix() -> dict:
    """Return the row of writing a mix for 4,000 synthetic images, in comparison with json alone."""
    return row("writing the lines of a mix", "json alone", 1 / measured(4000)["ratio"], 0.1)


def of_texts() -> list[dict]:
    """Return rows that compare RadVLM's filter and conversations with the reports engine; no rows without reports.

    Each report is read once. Results for repeated sentences are cached, so the first reports take longest. There are
    rows for all reports, for the first and for the last. The time of the reports engine is the best of three rounds.
    Objects of the previous benchmarks are excluded from garbage collection, because a job of the stage does not have
    them.
    """
    sections = in_sentences(openi())
    if not sections:
        return []
    read = reports.load_engine("rules", reports.EngineOptions("both_bases"))
    keep = filtered.load_engine(filtered.FilterOptions("rules", "drop"), {}).filter
    options = ConversationOptions("rules", 1, len(sections), "strict", 42)
    converse = conversations.load_engine(options, {}).converse
    read(sections[0]), keep(sections[:1]), load_wordings()  # lexicon and wordings are loaded
    gc.collect()
    gc.freeze()
    time = seconds(lambda: keep(sections[:REPORTS]), 1)
    asked = [Told(facts, grounded=False) for facts in facts_of(keep(sections))]
    parts = {
        f"the first {REPORTS}": slice(REPORTS),
        "those between": slice(REPORTS, -REPORTS),
        f"the last {REPORTS}": slice(-REPORTS, None),
    }
    engine = {name: seconds(lambda at=at: [read(own) for own in sections[at]], 3) for name, at in parts.items()}
    ours = {name: seconds(lambda at=at: converse(asked[at]), 1) for name, at in parts.items()}
    gc.unfreeze()
    engine["all"], ours["all"] = sum(engine.values()), sum(ours.values())
    what = "reports a second of RadVLM's conversations with the strict check"
    found = [
        row("reports a second of RadVLM's filter", "the reports engine", engine[f"the first {REPORTS}"] / time, 0.5)
    ]
    for name in ("all", f"the first {REPORTS}", f"the last {REPORTS}"):
        found.append(row(f"{what}, {name}", "the reports engine", engine[name] / ours[name], 0.5))
    return found


def of_scoring() -> list[dict]:
    """Return rows of scores and intervals of 10,000 grounding answers, in comparison with a loop over the replicates.

    The loop is measured on a few replicates. In the second row, the loop reuses the scores of the single samples.
    """
    rng = np.random.default_rng(5)
    lines, found = [], []
    for number in range(SCORED):
        true = boxes(int(rng.integers(1, 4)), number) / GRID
        answer = np.clip(true[: int(rng.integers(0, len(true) + 1))] + rng.normal(0, 0.02, 4), 0, 1)
        subject, name = f"p{rng.integers(SCORED // 2)}", f"finding {number % 14}"
        lines.append({"asked": name, "boxes": {name: true.tolist()}, "subject_id": subject})
        found.append(AnswerBoxes(answer))
    subjects = [line["subject_id"] for line in lines]
    how = {"level": 0.95, "seed": 1}

    def ours() -> list:
        return score_measures(
            grounding.measures(list(zip(lines, found, strict=True))), subjects, replicates=REPLICATES, **how
        )

    patients, place = np.unique(subjects, return_inverse=True)
    weights = np.concatenate(list(draw_weights(len(patients), REPLICATES, 1)))

    def score_again(row: np.ndarray) -> list[float]:
        samples = np.repeat(np.arange(SCORED), row[place])
        measures = grounding.measures([(lines[at], found[at]) for at in samples])
        return [float(measure.value(measure.sums.sum(axis=0))) for measure in measures]

    all_measures = grounding.measures(list(zip(lines, found, strict=True)))

    def sum_scores(row: np.ndarray) -> list[float]:
        samples = np.repeat(np.arange(SCORED), row[place])
        return [float(measure.value(measure.sums[samples].sum(axis=0))) for measure in all_measures]

    np.testing.assert_allclose(score_again(weights[0]), sum_scores(weights[0]))
    time_ours = seconds(ours, 3)
    print(f"scoring {SCORED} samples with {REPLICATES} replicates: {time_ours:.1f} s")
    plain = seconds(lambda: [score_again(row) for row in weights[:2]], 1) / 2 * REPLICATES
    with_kept_scores = seconds(lambda: [sum_scores(row) for row in weights[:20]], 1) / 20 * REPLICATES
    title = f"scores of {SCORED} answers with boxes, {REPLICATES} replicates"
    return [
        row(title, "a loop over replicates", plain / time_ours, 20.0),
        row(title, "a loop over replicates that keeps the samples' scores", with_kept_scores / time_ours),
    ]


def asked_in_batches(folder: Path, given: dict, run: str, most: int, rounds: int) -> float:
    """Return the time of single answers divided by that of batches of 16; check that the texts are equal."""
    how = replace(ASKING, max_new_tokens=most)
    times, texts = {}, {}
    for size in (1, 16):
        path = folder / f"{size}.jsonl"

        def work(path=path, size=size) -> None:
            path.unlink(missing_ok=True)
            ask(path, given, run, how, batch=size)

        times[size] = seconds(work, rounds)
        texts[size] = [line["text"] for line in read_lines(path)]
    assert texts[1] == texts[16]
    return times[1] / times[16]


def of_batches(folder: Path) -> list[dict]:
    """Return the rows of answers and of tuning, in batches in comparison with single samples."""
    given = data(folder, pictures=16)
    run = tune(folder / "t", given, recipe(updates=60), checkpoint_every=1000)
    asking = row("answers in batches of 16", "one by one", asked_in_batches(folder, given, run, 40, 3))
    learning = {}
    for size in (1, 16):
        options = recipe(updates=12, batch=16, micro_batch=size)
        learning[size] = seconds(lambda size=size, options=options: tune(folder / f"m{size}", given, options), 2)
    return [asking, row("tuning in micro-batches of 16", "of 1", learning[1] / learning[16])]


def talks(folder: Path, pictures: int, turns: list[int], sizes: tuple = ((SIDE, SIDE),)) -> dict:
    """Write conversations about synthetic images, ``turns``: number of turns of each; return as :func:`data` does."""
    given = data(folder, pictures=pictures, sizes=sizes)
    lines = []
    for at, count in enumerate(turns):
        said = [{"question": f"what is bright in part {turn}?", "answer": f"a thing number {turn}."}
                for turn in range(count)]  # fmt: skip
        named = {"sample_id": f"s{at}", "image_id": f"p{at % pictures}", "source": "drawn", "split": "train"}
        lines.append(named | {"task": "conversation", "turns": said, "boxes": {}})
    write_lines(folder / "talks.jsonl", lines)
    return given | {"lines": str(folder / "talks.jsonl")}


def each_round_anew(run: str, given: dict, how: AnswersOptions) -> list[str]:
    """Return the answers of conversations as in the authors' code: each turn processes the image and all earlier
    turns."""
    setup = Setup(device="cpu", batch=1, requested_gpus=0)
    collator = load_collator(run, "")
    engine = load_answerer(Path(run), "", how, setup, collator)
    found = []
    with ImageStore(given["pictures"], image_options(run)[0]) as store:
        for sample in read_samples(given["lines"]):
            said: list[str] = []
            for _ in sample.turns:
                (one,) = engine.answer([TurnRequest(collator.ask(sample, store.get(sample), said), None)])
                said.append(one.text)
            found += said
    return found


def of_conversing(folder: Path) -> list[dict]:
    """Return the rows of conversations in batches, which cache earlier turns, for small and for larger images."""
    found = []
    for side in (SIDE, LARGER):
        place = folder / str(side)
        given = talks(place, 16, [6] * 16, ((side, side),))
        told = replace(OPTIONS, family="onevision", convention="unit", side=side)
        run, how = str(tune(place / "t", given, recipe(told, updates=40))), replace(ASKING, max_new_tokens=16)
        texts: dict[int, list[str]] = {}

        def ours(size: int, given=given, run=run, how=how, place=place, texts=texts) -> None:
            path = place / f"{size}.jsonl"
            path.unlink(missing_ok=True)
            texts[size] = [line["text"] for line in read_lines(ask(path, given, run, how, batch=size))]

        def plain(given=given, run=run, how=how, texts=texts) -> None:
            texts[0] = each_round_anew(run, given, how)

        time = {size: seconds(lambda size=size: ours(size), 2) for size in (1, 16)} | {0: seconds(plain, 2)}
        assert texts[0] == texts[1] == texts[16]
        with patch.object(onevision, "REUSES_KV_CACHE", False):
            anew = seconds(lambda: ours(16), 2)
        assert texts[0] == texts[16]
        what = f"conversations of six rounds about pictures of {side} px"
        found.append(row(f"{what}, 16 at once", "each round anew, batch 1", time[0] / time[16], 3.0))
        found.append(row(f"{what}, one by one", "each round anew, batch 1", time[0] / time[1]))
        found.append(row(f"{what}, 16 at once", "the same, each round read anew", anew / time[16]))
    return found


def of_training(folder: Path) -> dict:
    """Return the row of an epoch of training in buckets, in comparison with a plain shuffle and single image tiles."""
    counts = [1 + int(one) for one in np.random.default_rng(6).lognormal(0.8, 0.8, 48)]
    given = talks(folder, 16, counts)
    run = tune(folder / "t", given, recipe(replace(OPTIONS, family="onevision", convention="unit"), updates=1))
    loaded, collator = load_run(run, "", torch.float32), load_collator(run, "")
    model, samples = loaded.model.train(), read_samples(given["lines"])
    with ImageStore(given["pictures"]) as store:
        encoded = [collator.encode(sample, store.get(sample)) for sample in samples]
    lengths = [len(one.ids) for one in encoded]
    order = np.random.default_rng(7).permutation(len(encoded)).tolist()
    plain = [order[at : at + 8] for at in range(0, len(order), 8)]
    tower = next(part for name, part in model.named_modules() if name.endswith("vision_tower"))
    whole = tower.forward

    def one_by_one(pixel_values: torch.Tensor, **told: object) -> object:
        found = [whole(pixel_values=tile[None], **told) for tile in pixel_values]
        states = zip(*(one.hidden_states for one in found), strict=True)
        return SimpleNamespace(hidden_states=[torch.cat(state) for state in states])

    def epoch(updates: list, tiles: object) -> float:
        tower.forward, total = tiles, 0.0
        for part in updates:
            model.zero_grad()
            loss = TextLoss().sums(model, collator.batch([encoded[at] for at in part]))["text"]
            loss.backward()
            total += float(loss.detach())
        return total

    buckets = epoch_order(lengths, 8, 42, 0)
    np.testing.assert_allclose(epoch(buckets, whole), epoch(plain, one_by_one), rtol=1e-4)
    ours, theirs = (seconds(lambda one=one: epoch(*one), 2) for one in ((buckets, whole), (plain, one_by_one)))
    return row("tokens a second of training, in buckets", "a plain shuffle, tile by tile", theirs / ours, 1.5)


def main() -> None:
    """Measure the rows, print them and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="benchmarks/vlm.tsv")
    parser.add_argument("--run", default="results", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row(*UNIONS, of_unions(40, ROUNDS), 20.0),
            of_reading(),
            of_buckets(),
            *of_fusion(Path(folder)),
            of_mix(),
            *of_scoring(),
            *of_texts(),
            *of_calls(given.run),
            *of_batches(Path(folder)),
            *of_conversing(Path(folder) / "talks"),
            of_training(Path(folder) / "training"),
        ]
    table = pl.DataFrame(rows)
    print(table)
    write_table(given.output, table)


if __name__ == "__main__":
    main()
