"""Masks of answers, stored in an HDF5 shard. Each token [SEG] in an answer has a mask over the frame of the image."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.nets.devices import inference, select_device
from cxr.segmentation.encoder_cache import MemoryCache
from cxr.segmentation.head import resize_logits
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm.answers.engine import AnswersOptions, Reply
from cxr.vlm.models import SEGMENTER
from cxr.vlm.samples import ImageStore
from cxr.vlm.segmenting import sam_image

KEY, FIELD = "mask_key", "mask"
MASK_ATTRS = {
    "frame": f"{FRAME_SIZE} x {FRAME_SIZE} pixels, the frame of the picture with its padding; right is on the image's "
    "left",
    "masks": "one for each [SEG] of an answer: sample_id/turn/number, both from 0",
}


class MaskPredictor:
    """Predictor of the masks in a run's answers. ``side`` is the side of a mask in px."""

    def __init__(self, segmenter: Segmenter, device: torch.device, side: int = FRAME_SIZE):
        self.segmenter, self.device, self.side = segmenter.to(device), device, side
        self.embeddings = MemoryCache()

    @classmethod
    def load(cls, run: str | Path, options: AnswersOptions, setup: Setup) -> "MaskPredictor":
        """Return the mask predictor of a run. Raises UserError if its segmenter is incomplete."""
        segmenter = Segmenter.load(Path(run, SEGMENTER), getattr(torch, options.dtype))
        return cls(segmenter, select_device(setup.device, setup.requested_gpus))

    def logits(self, view: str, frame: np.ndarray, marks: Sequence[torch.Tensor]) -> np.ndarray:
        """Return logits, float32 (M, T, T), of the masks of M [SEG] tokens. A mask is where its logits exceed 0.

        The T × T pixels cover the whole ``frame``, uint8 (H, W). ``view`` is the key of the image, whose embedding is
        cached. ``marks`` are the hidden states of the [SEG]. Masks are predicted one at a time, so that a mask does not
        depend on the number of masks.
        """
        square, side = (self.side, self.side), self.segmenter.side
        with inference():
            levels = sam_image(frame, side)[None].to(self.device)
            embedding = self.embeddings.get([(view, False)], levels, self.segmenter.embed)
            states = [mark[None].to(self.device, embedding.dtype) for mark in marks]
            all_logits = (self.segmenter(state, embedding) for state in states)
            mask_logits = [resize_logits(logits, side, (side, side), square)[0] for logits in all_logits]
        return np.stack([tensor.cpu().numpy() for tensor in mask_logits])


def write_masks(path: Path, replies: Iterable[Reply], drawer: MaskPredictor, store: ImageStore, attrs: dict) -> None:
    """Write a shard with the masks of all replies, in order, and the HDF5 attributes ``attrs``."""
    with _mask_writer(path, attrs, drawer.side) as writer:
        for reply in replies:
            if reply.answer.marks:
                logits = drawer.logits(store.view(reply.sample), store.frame(reply.sample), reply.answer.marks)
                for number, mask in enumerate(logits > 0):
                    writer.append(f"{reply.sample.sample_id}/{reply.turn}/{number}", **{FIELD: mask})


def join_masks(path: str | Path, parts: Sequence[Path], attrs: dict) -> None:
    """Merge the shards ``parts`` into one with the HDF5 attributes ``attrs``; one mask is in memory at a time."""
    with _mask_writer(path, attrs, FRAME_SIZE) as writer:
        for part in parts:
            with Shard(part, key=KEY) as shard:
                for key in shard.ids:
                    writer.append(key, **{FIELD: shard.stored(FIELD, key)})


def _mask_writer(path: str | Path, attrs: dict, side: int) -> ShardWriter:
    return ShardWriter(path, key=KEY, attrs=attrs | MASK_ATTRS, empty={FIELD: ((side, side), bool)})
