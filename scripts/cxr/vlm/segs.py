"""The [SEG] of samples and batches: where they stand, the images they are about, the masks that they are to give."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cxr.base.hdf5 import Shard
from cxr.segmentation.pictures import centred, mask_target, sam_levels
from cxr.vlm.samples import PictureStore, Sample
from cxr.vlm.tokens import SEG


class MaskStore:
    """Masks of shards, by mask_id. Use inside ``with``."""

    def __init__(self, shards: Iterable[str | Path]):
        self.shards = list(map(Path, shards))

    def __enter__(self) -> "MaskStore":
        self._stack = ExitStack()
        opened = [self._stack.enter_context(Shard(path, key="mask_id")) for path in self.shards]
        self._of = {mask_id: shard for shard in opened for mask_id in shard.ids}
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def has(self, sample: Sample) -> bool:
        """Return whether each [SEG] of a sample's answers has its mask; an empty id stands for an empty mask."""
        num_segs = sum(turn.answer.count(SEG) for turn in sample.turns)
        return num_segs == len(sample.mask_ids) and all(not name or name in self._of for name in sample.mask_ids)

    def get(self, mask_id: str) -> np.ndarray:
        """Return a mask, bool (H, W), of no pixel (1, 1) for an empty id. Raises StoreError for a damaged shard."""
        return self._of[mask_id].get("mask", mask_id) if mask_id else np.zeros((1, 1), bool)


@dataclass(frozen=True)
class Aims:
    """What a sample's [SEG] are to give. view: name of its image, the same for all samples of it; levels: uint8 (S, S),
    SAM's image; masks: uint8 (n, T, T) of 0 and 1, one for each [SEG], in order.
    """

    view: str
    levels: torch.Tensor
    masks: torch.Tensor


@dataclass(frozen=True)
class Segs:
    """The M [SEG] of a batch, about I images.

    rows, places (M,): where each stands in the batch's ids; image_of (M,): its image; views: names of the images;
    levels: uint8 (I, S, S); masks: uint8 (M, T, T).
    """

    rows: torch.Tensor
    places: torch.Tensor
    image_of: torch.Tensor
    views: list[str]
    levels: torch.Tensor
    masks: torch.Tensor

    def to(self, device: torch.device) -> "Segs":
        """Return them on a device."""
        tensor_names = ("rows", "places", "image_of", "levels", "masks")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensor_names})


def joined(segs_by_row: Mapping[int, tuple[list[int], Aims]]) -> Segs:
    """Return the [SEG] of a batch's rows: {row: (their places in its ids, what they are to give)}."""
    levels_by_view = {aims.view: aims.levels for _, aims in reversed(segs_by_row.values())}
    views = list(dict.fromkeys(aims.view for _, aims in segs_by_row.values()))
    marks = [(row, place, views.index(aims.view)) for row, (places, aims) in segs_by_row.items() for place in places]
    rows, places, image_of = torch.tensor(marks, dtype=torch.long).reshape(-1, 3).unbind(1)
    levels = (
        torch.stack([levels_by_view[view] for view in views]) if views else torch.zeros((0, 1, 1), dtype=torch.uint8)
    )
    masks = [aims.masks for _, aims in segs_by_row.values()]
    return Segs(
        rows, places, image_of, views, levels, torch.cat(masks) if masks else torch.zeros((0, 1, 1), dtype=torch.uint8)
    )


def aims_of(sample: Sample, pictures: PictureStore, masks: MaskStore, side: int) -> Aims | None:
    """Return what a sample's [SEG] are to give, in SAM's square of ``side`` px; None for a sample without [SEG].

    Its masks lie in the frame of its image.
    """
    if not sample.mask_ids:
        return None
    levels = levels_of(pictures.frame(sample), side)
    targets = [torch.from_numpy(mask_target(masks.get(name), side, "pad")) for name in sample.mask_ids]
    return Aims(pictures.view(sample), levels, torch.stack(targets))


def levels_of(frame: np.ndarray, side: int) -> torch.Tensor:
    """Return SAM's image, uint8 (S, S), of a frame, uint8 (H, W); what is not square is put into the centre of one."""
    return sam_levels(centred(frame), side)[0]
