"""Train the base of RadVLM's small model and write it beside this file.

    python resources/vlm/onevision_tiny/train.py [--work .onevision] [--cores 2]

Needs the pipeline's own packages and those of the tests, no GPU; its cohorts are made by the workflow, in ``--work``,
and stay there. First the tower learns the boxes of regions and where lesions are (tower.py), then the whole model
learns the mix, with its pictures moved. What is learnt from, and how well it works, is in CARD.md.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "scripts"))
sys.path.insert(0, str(HERE))

import tower  # noqa: E402
from data import COHORTS, REGIONS, Cohorts, make, shown  # noqa: E402
from updates import arguments, rate, step, tell  # noqa: E402

from cxr.base.seeds import stable_hash  # noqa: E402
from cxr.vlm.collate import Collator  # noqa: E402
from cxr.vlm.conventions import find_convention  # noqa: E402
from cxr.vlm.models import Loaded, load_model, make_tiny  # noqa: E402
from cxr.vlm.samples import all_texts, fit_size  # noqa: E402
from cxr.vlm.tokens import IGNORED  # noqa: E402
from cxr.vlm.tuning.fit import epoch_order  # noqa: E402
from cxr.vlm.tuning.settings import OnevisionTinyRecipe  # noqa: E402

SEED = 1
UPDATES, BATCH, RATE, TOWER_SLOWED = 9000, 16, 2e-3, 0.15
"""Of the whole model; the tower's rate is slowed, as it has learnt already."""
FIRST = 1500
"""Updates on regions alone: to read coordinates is learnt before all else."""
LATER = 4
"""One of so many lines of regions is asked beside the other tasks."""
SHARE = 0.5
"""Share of the samples whose pictures are moved."""
DIGITS = 3.0
"""Weight of a digit in the loss: there are few beside the words."""


def see(loaded: Loaded, cohorts: Cohorts, side: int) -> None:
    """Let the tower learn regions and lesions."""
    images, boxes = cohorts.regions()
    regions = dict(zip(images, boxes, strict=True))
    pictures = [one for one in cohorts.lesions(SEED) if one.image_id in regions]
    net, patch = loaded.model.model.vision_tower, loaded.model.config.vision_config.patch_size
    tower.fit(net, pictures, regions, side // 2, patch, stable_hash(SEED, "tower"))


def whole(loaded: Loaded, cohorts: Cohorts, side: int) -> None:
    """Let the model learn the mix: first its regions, then all of it."""
    model, samples = loaded.model.train(), cohorts.samples
    collator = Collator(loaded.family, loaded.tokens, find_convention("unit"))
    lengths = [collator.length(one, fit_size(cohorts.pictures[one.image_id].shape, side)) for one in samples]
    regions = [at for at, one in enumerate(samples) if one.task == "anatomical_grounding"]
    kept = set(regions[::LATER])
    mixed = [at for at, one in enumerate(samples) if at in kept or one.task != "anatomical_grounding"]
    batches = [_batches(regions, lengths, "regions"), _batches(mixed, lengths, "all")]
    for name, value in model.named_parameters():
        value.requires_grad_(not name.startswith(loaded.family.idle))
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    slow = [value for name, value in trained.items() if "vision_tower" in name]
    fast = [value for name, value in trained.items() if "vision_tower" not in name]
    optimiser = torch.optim.AdamW([{"params": fast}, {"params": slow, "scale": TOWER_SLOWED}], lr=0.0, weight_decay=0.0)
    digits = torch.ones(len(loaded.tokens.tokenizer))
    digits[loaded.tokens.tokenizer.convert_tokens_to_ids(list("0123456789"))] = DIGITS
    for update in range(UPDATES):
        encoded = []
        for at in next(batches[update >= FIRST]):
            draw = random.Random(stable_hash(SEED, "moved", update, at))
            sample, picture = shown(samples[at], cohorts.pictures[samples[at].image_id], side, draw, SHARE)
            encoded.append(collator.encode(sample, picture))
        batch = collator.batch(encoded)
        logits, labels = model(**batch.inputs, use_cache=False).logits[:, :-1], batch.labels[:, 1:]
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), weight=digits, ignore_index=IGNORED)
        step(optimiser, loss, list(trained.values()), RATE * rate(update, UPDATES))
        tell("model", update, UPDATES, float(loss.detach()))


def _batches(numbers: Sequence[int], lengths: Sequence[int], name: str) -> Iterator[list[int]]:
    """Yield the samples of each update without end."""
    for epoch in count():
        order = epoch_order([lengths[at] for at in numbers], BATCH, stable_hash(SEED, name), epoch)
        for batch in order:
            yield [numbers[at] for at in batch]


def main() -> None:
    given = arguments(__doc__)
    torch.set_num_threads(1)
    side = OnevisionTinyRecipe.side
    cohorts = Cohorts([make(given.work, seed, studies, given.cores, REGIONS) for seed, studies in COHORTS.items()])
    with tempfile.TemporaryDirectory() as folder:
        texts = all_texts(cohorts.samples, find_convention("unit"))
        make_tiny("onevision", folder, texts, side, stable_hash(SEED, "start") % 2**63)
        loaded = load_model("onevision", folder)
        torch.manual_seed(SEED)
        see(loaded, cohorts, side)
        whole(loaded, cohorts, side)
        loaded.model.half().save_pretrained(folder)
        save_file(load_file(Path(folder, "model.safetensors")), HERE / "model.safetensors", metadata={"format": "pt"})
    words = loaded.tokens.tokenizer.get_vocab()
    (HERE / "words.json").write_text(json.dumps(sorted(words, key=words.get), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
