"""Prepare pairs as model inputs, one by one and in batches.

The setting ``fit`` says how an image that is not square, its mask and the prediction become square:

* ``pad``: a black border is added to the image. If the masks are square, the image lies in the centre of its square.
  If the masks have the image's shape, image and mask are padded at the right and bottom.
* ``stretch``: the sides of image and mask are scaled to equal lengths.
* ``published``: image and mask are padded, but the prediction is cropped to the image and stretched to the square, as
  in the authors' code. Masks that were stretched to squares, as in their later code, need this value.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from cxr.base.errors import StoreError, UserError
from cxr.ils.rosalia.config import RosaliaConfig
from cxr.ils.rosalia.sampler import Draw, PairSampler
from cxr.ils.rosalia.sources import ImageSource, PairLines, PersonaWording, RandomWording, ShardFrames, ShardMasks
from cxr.ils.rosalia.tokens import IGNORED, Tokens
from cxr.ils.settings import PromptSettings
from cxr.segmentation import images
from cxr.segmentation.images import equalise, make_mask_target, normalise_levels, pad_to_square


@dataclass(frozen=True)
class PairOptions:
    """Options for the preparation of pairs as model inputs. Sides are in pixels."""

    conversation: str  # Name of LISA's conversation template
    max_length: int  # Maximum number of tokens with the answer
    features: int  # Number of image tokens
    sam_side: int  # Side of SAM's input
    clip_side: int  # Side of CLIP's input
    target: int  # Side of masks and predictions
    fit: str  # How images become square: pad, stretch or published
    answers: bool  # Whether the input includes the answer (training)
    equalise: bool  # Whether images are equalised if no :class:`Draw` decides (evaluation)

    @classmethod
    def for_model(
        cls, config: RosaliaConfig, wording: PromptSettings, *, target: int | None = None, answers: bool, equalise: bool
    ) -> "PairOptions":
        """Return the options for a model with this configuration. ``target`` is by default the side of SAM's input."""
        vision, side = config.llava.vision_config, config.sam.vision_config.image_size
        sizes = {"features": (vision.image_size // vision.patch_size) ** 2, "sam_side": side}
        sizes |= {"clip_side": vision.image_size, "target": side if target is None else target}
        texts = {"conversation": wording.conversation, "max_length": wording.max_length, "fit": wording.fit}
        return cls(**sizes, **texts, answers=answers, equalise=equalise)


@dataclass(frozen=True)
class Sample:
    """One pair as model input, with L tokens, side S of SAM's input, side c of CLIP's input and target side T."""

    pair_id: str
    image_id: str
    equalised: bool
    input_ids: torch.Tensor  # int64 (L,)
    labels: torch.Tensor  # int64 (L,), -100 for tokens that the loss ignores
    levels: torch.Tensor  # uint8 (S, S), SAM's input before normalising
    content_shape: tuple[int, int]  # Rows and columns of ``levels`` that show the image
    clip: torch.Tensor  # float32 (3, c, c)
    mask: np.ndarray | None  # uint8 (T, T) of 0 and 1, empty for a negative; None if no masks are read
    resized: tuple[int, int]  # Rows and columns to which a prediction in SAM's square is cropped
    original: tuple[int, int]  # Rows and columns to which the prediction is then resized

    @property
    def view(self) -> tuple[str, bool]:
        """(image id, whether equalised). Samples with the same view share the outputs of the encoders."""
        return self.image_id, self.equalised

    @property
    def sam(self) -> torch.Tensor:
        """SAM's input, float32 (3, S, S)."""
        return normalise_levels(self.levels[None], [self.content_shape])[0]


@dataclass(frozen=True)
class Batch:
    """A batch of B samples of I different images. The texts are padded at the right."""

    input_ids: torch.Tensor  # int64 (B, L)
    attention: torch.Tensor  # int64 (B, L), 0 at padding, which shares its id with unknown words
    labels: torch.Tensor  # int64 (B, L)
    images: torch.Tensor  # uint8 (I, S, S), which :meth:`to` normalises to (I, 3, S, S)
    clip: torch.Tensor  # (I, 3, c, c)
    image_of: torch.Tensor  # int64 (B,), row of ``images``
    masks: list[torch.Tensor]
    """B arrays (n, H, W), uint8, or float32 after :meth:`to`; n is 1, or 0 if no masks are read."""
    resized: list[tuple[int, int]]  # As in :class:`Sample`, for I images
    original: list[tuple[int, int]]  # As in :class:`Sample`, for B samples
    pair_ids: list[str]  # B
    content_shapes: list[tuple[int, int]] | None = None
    """Rows and columns of ``images`` that show each of I images; None after normalisation."""
    views: list[tuple[str, bool]] = field(default_factory=list)  # (image id, whether equalised) of I images

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Batch":
        """Return the batch on a device with normalised images of type ``dtype`` and float32 masks."""
        names = ("input_ids", "attention", "labels", "image_of")
        tensors = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        tensors["clip"] = self.clip.to(device, dtype, non_blocking=True)
        shapes, dtype_now = self.content_shapes, dtype if self.content_shapes is None else None
        images = self.images.to(device, dtype_now, non_blocking=True)
        tensors["images"] = images if shapes is None else normalise_levels(images, shapes, dtype)
        masks = [mask.to(device, non_blocking=True).float() for mask in self.masks]
        return replace(self, **tensors, masks=masks, content_shapes=None)

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory. Called by torch's DataLoader."""
        names = ("input_ids", "attention", "labels", "images", "clip", "image_of")
        pinned = {name: getattr(self, name).pin_memory() for name in names}
        return replace(self, **pinned, masks=[mask.pin_memory() for mask in self.masks])


class Pixels(NamedTuple):
    """The inputs of SAM and CLIP made from an image; fields as in :class:`Sample`."""

    levels: torch.Tensor
    content_shape: tuple[int, int]
    clip: torch.Tensor


def prepare_pixels(image: np.ndarray, options: PairOptions) -> Pixels:
    """Return the inputs of SAM and CLIP made from a grey image, uint8 (H, W)."""
    levels, content_shape = images.make_sam_levels(image, options.sam_side, options.fit)
    return Pixels(levels, content_shape, images.make_clip_input(image, options.clip_side, options.fit))


def make_sample(
    tokens: Tokens,
    options: PairOptions,
    pixels: Pixels,
    instruction: str,
    answer: str | None,
    mask: np.ndarray | None,
    equalised: bool,
    *,
    pair_id: str,
    image_id: str,
) -> Sample:
    """Return the sample of an instruction about an image. ``answer`` is None if the model shall answer itself."""
    texts = tokens.encode(instruction, answer, options.conversation, options.features, options.max_length)
    resized = pixels.content_shape if options.fit == "published" else (options.sam_side, options.sam_side)
    return Sample(pair_id, image_id, equalised, *texts, *pixels, mask, resized, (options.target, options.target))


NO_FRAME = "no_frame"  # fault of a pair whose image is missing, in inference


class Pairs(Dataset):
    """The pairs of the JSONL file ``lines`` as samples with image and mask. The index is a row or a :class:`Draw`.

    Images come from ``pictures`` or else from the shards ``frames``. Without ``masks`` samples have no masks.
    ``wording`` selects the text of an instruction, by default the plain text. Raises UserError for a pair without
    its mask or image: in the constructor if ``masks`` are given, else when the pair is read.
    """

    def __init__(
        self,
        *,
        lines: str,
        tokens: Tokens,
        options: PairOptions,
        masks: list[str] | None = None,
        frames: list[str] | None = None,
        pictures: ImageSource | None = None,
        wording: RandomWording | PersonaWording | None = None,
    ):
        self.lines, self.tokens, self.options = PairLines(lines), tokens, options
        self.wording = wording
        self.pictures = ShardFrames(frames or []) if pictures is None else pictures
        self.masks = ShardMasks(masks) if masks else None
        self._last: tuple[tuple[str, bool], Pixels] | None = None
        if self.masks is not None:
            self._refuse_missing()

    def _refuse_missing(self) -> None:
        missing = {number for number, name in enumerate(self.lines.images) if name not in self.pictures}
        for row in np.flatnonzero(self.lines.positive):
            line = self.lines[row]
            if line["mask_id"] not in self.masks:
                raise UserError(
                    f"{self.lines.path}: the mask {line['mask_id']} of the pair {line['pair_id']} is not in "
                    f"{self.masks.name}: give the masks of the same threshold set"
                )
        if missing:
            line = self.lines[int(np.flatnonzero(np.isin(self.lines.image, list(missing)))[0])]
            raise UserError(
                f"{self.lines.path}: the image {line['image_id']} of the pair {line['pair_id']} is not in "
                f"{self.pictures.name} ({len(missing)} of {len(self.lines.images)} images are missing): add them"
            )

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, which: int | Draw) -> Sample:
        row, equalised, chance = Draw(*which) if isinstance(which, tuple) else Draw(int(which), self.options.equalise)
        if not 0 <= row < len(self):
            raise IndexError(row)
        line = self.lines[row]
        try:
            text = self.wording.text(line, chance) if self.wording else line["instruction"]
            answer = line["answer"] if self.options.answers else None
            ids = {name: line[name] for name in ("pair_id", "image_id")}
            pixels = self._read_pixels(line["image_id"], equalised)
            return make_sample(self.tokens, self.options, pixels, text, answer, self._mask(line), equalised, **ids)
        except (UserError, StoreError) as error:
            raise UserError(f"pair {line['pair_id']}: {error}") from None

    def _read_pixels(self, image_id: str, equalised: bool) -> Pixels:
        key = (image_id, equalised)
        if self._last is None or self._last[0] != key:  # pairs of one image are consecutive
            if image_id not in self.pictures:
                raise UserError(NO_FRAME)
            image = self.pictures.get(image_id)
            levels = equalise(image) if equalised else image
            if self.options.fit == "pad" and self.masks is not None and len(set(self.masks.shape or ())) == 1:
                levels = pad_to_square(levels)  # because the masks are square
            self._last = key, prepare_pixels(levels, self.options)
        return self._last[1]

    def _mask(self, line: dict) -> np.ndarray | None:
        if self.masks is None:
            return None
        side = self.options.target
        if not line["seg"]:
            return np.zeros((side, side), np.uint8)
        return make_mask_target(self.masks.get(line["mask_id"]), side, self.options.fit)


def collate(samples: list[Sample], pad_id: int) -> Batch:
    """Return samples as a batch, with one image per :attr:`Sample.view`; ``pad_id``: token id of padding."""
    first_by_view = {sample.view: sample for sample in reversed(samples)}
    views = list(dict.fromkeys(sample.view for sample in samples))
    firsts = [first_by_view[view] for view in views]
    lengths = torch.tensor([len(sample.input_ids) for sample in samples])
    return Batch(
        input_ids=pad_sequence([sample.input_ids for sample in samples], batch_first=True, padding_value=pad_id),
        attention=(torch.arange(int(lengths.max())) < lengths[:, None]).long(),
        labels=pad_sequence([sample.labels for sample in samples], batch_first=True, padding_value=IGNORED),
        images=torch.stack([sample.levels for sample in firsts]),
        clip=torch.stack([sample.clip for sample in firsts]),
        image_of=torch.tensor([views.index(sample.view) for sample in samples]),
        masks=[_mask_tensor(sample) for sample in samples],
        resized=[sample.resized for sample in firsts],
        original=[sample.original for sample in samples],
        pair_ids=[sample.pair_id for sample in samples],
        content_shapes=[sample.content_shape for sample in firsts],
        views=views,
    )


def _mask_tensor(sample: Sample) -> torch.Tensor:
    if sample.mask is None:
        return torch.zeros((0, *sample.original), dtype=torch.uint8)
    return torch.from_numpy(sample.mask)[None]


def make_loader(pairs: Pairs, batches: PairSampler | list[list[int]], workers: int, *, pin: bool = False) -> DataLoader:
    """Return a loader of ``batches``, a sampler or lists of rows. Iterate over it by :func:`unwrap_errors`."""
    # in forked workers, OpenCV would wait forever for threads of the parent process
    cv2.setNumThreads(1)
    how = {"collate_fn": partial(collate, pad_id=pairs.tokens.pad), "num_workers": workers, "pin_memory": pin}
    # SLURM sends SIGTERM to all processes, but workers must go on until the checkpoint is written
    how["worker_init_fn"] = lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return DataLoader(pairs, batch_sampler=batches, **how)


def unwrap_errors(batches: DataLoader) -> Iterator[Batch]:
    """Yield the batches of a loader. A UserError that torch wraps in a worker's traceback is reduced to its message."""
    try:
        yield from batches
    except UserError as error:
        raise UserError(str(error).rstrip().rpartition("UserError: ")[2]) from None
