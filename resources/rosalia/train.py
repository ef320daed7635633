"""Train the base, the initial model of the engine lite, and write it into this folder, or score it.

    python resources/rosalia/train.py              # remake model.safetensors, config.json and the tokenizer
    python resources/rosalia/train.py --evaluate   # remake scores.json and print it

The script needs only the packages of the pipeline and no GPU. The workflow makes the cohorts in the folder ``--work``,
where they stay. CARD.md describes the training data and the scores.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
sys.path.insert(0, str(HERE))

from data import Cohort, Store, make, scored, texts  # noqa: E402

from cxr.ils.rosalia.lite import make_lite  # noqa: E402
from cxr.ils.rosalia.model import Output, Rosalia  # noqa: E402
from cxr.ils.rosalia.samples import Batch, PairOptions, collate  # noqa: E402
from cxr.ils.rosalia.tokens import IGNORED, Tokens, make_word_tokenizer  # noqa: E402
from cxr.ils.training.fit import (  # noqa: E402
    WEIGHTS,
    compute_losses,
    learning_rate,
)
from cxr.segmentation.head import decode_masks  # noqa: E402
from cxr.workflow.settings import Settings  # noqa: E402


class Part(NamedTuple):
    """A cohort of the training data. ``films``: whether its lesions are painted on real X-rays."""

    seed: int
    studies: int
    films: bool


PARTS = (
    Part(1001, 400, False),
    Part(1002, 800, False),
    Part(1003, 800, False),
    Part(1003, 320, True),
)
"""Cohorts of the training data. None of them has the seed of the demo, 2026."""
DEMOS = (2026, 3001, 3002, 3003, 3004)
"""Seeds of the demos on which the base is scored, without and with fine-tuning. 2026 is the demo itself. 3001 and 3002
selected settings. 3003 and 3004 also scored earlier bases and selected nothing."""
SEED = 1
UPDATES, RATE, WARMUP = 2000, 2e-3, 150
"""Number of updates, peak learning rate, and number of updates until the peak. Then the rate falls to 0."""
TEXT = 5.0
"""Weight of the text loss. With 0.5, the paper's weight, a small model learns masks before it reads instructions."""
IMAGES = 16
"""Number of images in an update, each with all its pairs."""
DENIED = ((0, 1), (11, 3))
"""(epoch, negatives per positive whose masks are trained from this epoch on).

With one negative per positive in all epochs, half of the negatives got a mask.
"""
KEEP = 200
"""Updates between two checkpoints."""


def fit(cohorts: list[Cohort], work: Path, seed: int) -> tuple[Rosalia, Tokens]:
    """Train a model on all pairs of the cohorts. An interrupted run resumes from its checkpoint in ``work``."""
    torch.set_num_threads(1)
    settings = Settings().training
    recipe = settings.lite
    tokens = Tokens.prepare(make_word_tokenizer(texts()))
    model = make_lite(recipe.model_sizes, tokens, seed)
    store = Store(cohorts, tokens, PairOptions.for_model(model.config, settings, answers=True, equalise=False))
    weights = replace(WEIGHTS, text=TEXT)
    optimiser = torch.optim.AdamW(model.parameters(), 0.0, betas=recipe.betas, weight_decay=0.0)
    done, epoch, first = _resumed(work, model, optimiser)
    noted = np.zeros(4)
    model.train()
    while done < UPDATES:
        (*_, denied) = (number for begins, number in DENIED if begins <= epoch)
        batches = store.batches(np.random.default_rng([seed, epoch]), IMAGES, denied)
        for number, samples in enumerate(batches):
            if number < first:
                continue
            batch = collate(samples, tokens.pad).to("cpu", torch.float32)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(done, RATE, WARMUP, UPDATES)
            losses = compute_losses(forward(model, batch), batch, weights)
            optimiser.zero_grad(set_to_none=True)
            losses["loss"].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimiser.step()
            done += 1
            noted += [float(losses[name].detach()) for name in ("loss", "ce", "bce", "dice")]
            if done % 100 == 0:
                means = " ".join(f"{value:.3f}" for value in noted / 100)
                print(f"update {done} of {UPDATES}, epoch {epoch}: {means}", flush=True)
                noted[:] = 0
            if done % KEEP == 0 or done == UPDATES:
                held = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
                torch.save(held | {"at": (done, epoch, number + 1)}, work / "checkpoint.part")
                (work / "checkpoint.part").rename(work / "checkpoint.pt")
            if done == UPDATES:
                break
        epoch, first = epoch + 1, 0
    return model, tokens


def forward(model: Rosalia, batch: Batch) -> Output:
    """Return the output of ``model(batch)``, but with masks only for samples with a reference mask.

    The common prefix of the texts of one image, two thirds of their tokens, is read once, as in inference.
    """
    views = model.encode(batch)
    words = model._embed_batch(batch, views)
    shared = int((batch.input_ids == model.config.image_id).nonzero()[:, 1].max()) + 1
    first = torch.tensor([batch.image_of.tolist().index(image) for image in range(len(batch.images))])
    language = model.llava.model.language_model
    cache = DynamicCache(config=language.config)
    language(inputs_embeds=words[first, :shared], past_key_values=cache, use_cache=True)
    cache.batch_select_indices(batch.image_of)
    hidden = language(
        inputs_embeds=words[:, shared:],
        position_ids=torch.arange(shared, words.shape[1])[None],
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    learnt = batch.labels[:, shared + 1 :] != IGNORED
    asked = (batch.input_ids[:, shared + 1 :] == model.config.seg_id) & batch.attention[:, shared + 1 :].bool()
    asked &= torch.tensor([len(mask) > 0 for mask in batch.masks])[:, None]
    sample_of = asked.nonzero()[:, 0]
    seg = model.project(hidden[:, :-1][asked])
    low_res, iou = decode_masks(model.sam, seg, views.embeddings[batch.image_of[sample_of]])
    return Output(
        hidden=hidden, logits=None, text_logits=model.llava.lm_head(hidden[:, :-1][learnt]),
        text_labels=batch.labels[:, shared + 1 :][learnt], seg=seg, sample_of=sample_of, low_res=low_res, iou=iou,
        masks=model._resize_to_targets(low_res, sample_of, batch),
    )  # fmt: skip


def _resumed(work: Path, model: Rosalia, optimiser: torch.optim.Optimizer) -> tuple[int, int, int]:
    path = work / "checkpoint.pt"
    if not path.is_file():
        return 0, 0, 0
    held = torch.load(path, weights_only=True)
    model.load_state_dict(held["model"])
    optimiser.load_state_dict(held["optimiser"])
    return held["at"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluate", action="store_true", help="score the base in the output folder")
    parser.add_argument("--work", type=Path, required=True, help="folder for cohorts and checkpoints")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the base")
    parser.add_argument("--cores", type=int, default=2, help="cores that make the cohorts")
    given = parser.parse_args()
    if given.evaluate:
        found = {str(seed): scored(given.work / "demos", seed, given.cores) for seed in DEMOS}
        text = json.dumps(found, indent=1) + "\n"
        (given.output / "scores.json").write_text(text, encoding="utf-8")
        print(text)
        return
    made = given.work / "cohorts"
    cohorts = [make(made, part.seed, part.studies, given.cores, films=part.films) for part in PARTS]
    model, tokens = fit(cohorts, given.work, SEED)
    model.half().save_pretrained(given.output)
    tokens.save(given.output)


if __name__ == "__main__":
    main()
