"""The embedded cohort's own dataset, read as training reads it, against a reader of ten lines."""

import json

import h5py
import hdf5plugin  # noqa: F401 (reads the compression)
import numpy as np
import polars as pl
import pytest
import torch

from cxr.ils.rosalia.sampler import PairSampler
from cxr.ils.rosalia.samples import PairOptions, Pairs, make_loader, unwrap_errors
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from sam_input import make_sam_input


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validate", "test"])
def test_every_pair_of_the_embedded_cohort_is_read(workflow_run, split):
    results = workflow_run / "results"
    path = results / f"dataset/default/{split}.jsonl"
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    options = PairOptions("llava_v1", 512, 16, 128, 64, 512, "pad", True, False)
    texts = [line[name] for line in lines for name in ("instruction", "answer")]
    data = Pairs(
        lines=str(path),
        tokens=Tokens.prepare(make_word_tokenizer(texts)),
        options=options,
        masks=[str(file) for file in sorted((results / "masks/default").glob("[0-9]*.h5"))],
        frames=[str(file) for file in sorted((results / "frames").glob("*.h5"))],
    )
    assert len(data) == len(lines) > 0
    place = {row[0]: row[1:] for row in pl.read_parquet(results / "masks/default/index.parquet").iter_rows()}
    images = {}
    for file in sorted((results / "frames").glob("*.h5")):
        with h5py.File(file) as frames:
            images |= dict(zip(frames["image_id"].asstr()[:], frames["image"][:], strict=True))
    for row, line in enumerate(lines):
        sample = data[row]
        assert sample.pair_id == line["pair_id"]
        assert data.tokens.pad not in sample.input_ids
        assert torch.equal(sample.sam, make_sam_input(images[line["image_id"]], 128)[0])
        mask = np.zeros((512, 512), np.uint8)
        if line["seg"]:
            shard, number = place[line["mask_id"]]
            with h5py.File(results / f"masks/default/{shard}.h5", locking=False) as masks:  # as the pairs have it open
                mask = np.unpackbits(masks["mask"][number], axis=-1)
            assert mask.any()
        np.testing.assert_array_equal(sample.mask, mask)
    if split == "train":
        draws = PairSampler(data.lines.positive, batch=4, seed=1, balance="exact", equalise=0.5, where=str(path))
        drawn = [pair for batch in unwrap_errors(make_loader(data, draws, 1)) for pair in batch.pair_ids]
        positives = sorted(line["pair_id"] for line in lines if line["seg"])
        assert sorted(pair for pair in drawn if "_positive_" in pair) == positives
